/* Products of whole matrices, before and after a loop over time: C = A B + bias, or C += A B.

   Blocks of rows of B are packed into tiles of 4 vectors of columns. Each thread has rows of A of its
   own; it packs a small B for itself, and shares the packing of a large one. The order of a sum
   depends on the sizes alone. */

#define WIDE (4 * VL)

/* R rows of A by a tile, of which m columns count; sums begin with `start`. */
#define TILE(R)                                                                                   \
    static void tile_##R(const real *start, const real *w, const real *a, long by_row,            \
                         long by_sum, long K, real *c, long ldc, long m, int add) {               \
        v s[R][4];                                                                                \
        EACH for (int r = 0; r < R; r++)                                                          \
            EACH for (int i = 0; i < 4; i++) s[r][i] = *(const v *)(start + i * VL);              \
        for (long k = 0; k < K; k++, w += WIDE, a += by_sum) {                                    \
            v y[4];                                                                               \
            EACH for (int i = 0; i < 4; i++) {                                                    \
                y[i] = *(const v *)(w + i * VL);                                                  \
                if (R > 1) HOLD(y[i]);                                                            \
            }                                                                                     \
            EACH for (int r = 0; r < R; r++)                                                      \
                EACH for (int i = 0; i < 4; i++) s[r][i] += y[i] * a[r * by_row];                 \
        }                                                                                         \
        EACH for (int i = 0; i < 4; i++) {                                                        \
            const long left = m - i * VL;                                                         \
            if (left > 0)                                                                         \
                EACH for (int r = 0; r < R; r++) {                                                \
                    real *to = c + r * ldc + i * VL;                                              \
                    store(to, add ? load(to, left) + s[r][i] : s[r][i], left);                    \
                }                                                                                 \
        }                                                                                         \
    }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)

/* M rows of A by a packed tile: its biases, then its K rows. */
static void rows_by_tile(const real *w, const real *a, long by_row, long by_sum, long M, long K,
                         real *c, long ldc, long m, int add) {
    static void (*const tile[])(const real *, const real *, const real *, long, long, long, real *,
                                long, long, int) = {0,      tile_1, tile_2, tile_3,
                                                    tile_4, tile_5, tile_6};
    static const v zeros[4];
    const long blocks = (M + ROWS(4) - 1) / ROWS(4);
    for (long i = 0, r = 0; i < blocks; i++) {
        const long rows = (M - r + blocks - i - 1) / (blocks - i);
        for (long k = 0; !k || k < K; k += SHORT)
            tile[rows](k ? (const real *)zeros : w, w + (k + 1) * WIDE, a + r * by_row + k * by_sum,
                       by_row, by_sum, K - k < SHORT ? K - k : SHORT, c + r * ldc, ldc, m, add || k);
        r += rows;
    }
}

/* Rows of A that lie in columns, next to one another. */
static void gather(real *to, const real *a, long ld, long M, long K) {
    for (long k = 0; k < K; k++)
        for (long m = 0; m < M; m += VL) store(to + k * CHUNK + m, load(a + k * ld + m, M - m), M - m);
}

/* The sums of B's columns. */
static void totals(long me, long threads, const dense *d) {
    for (long n = me * VL; n < d->N; n += threads * VL) {
        const long left = d->N - n;
        v total = d->add ? load(d->c + n, left) : V(0);
        for (long k = 0; k < d->K; k += SHORT) {
            v s = {};
            for (long i = k; i < d->K && i < k + SHORT; i++) s += load(d->b + i * d->ldb + n, left);
            total += s;
        }
        store(d->c + n, total, left);
    }
}

static void matrices(job *J, long me, long *round, const dense *d, real *packed, real *own) {
    const long threads = J->threads, tiles = (d->N + WIDE - 1) / WIDE;
    const long from = d->M * me / threads, to = d->M * (me + 1) / threads;
    const long block = d->K <= LONGEST ? d->K + !d->K : BLOCK;
    const int alone = threads == 1 || (d->K <= block && (d->K + 1) * tiles * WIDE <= SMALL);
    real *gathered = own + me * (CHUNK * LONGEST + SMALL);
    if (!d->c) return; /* nobody asks for it */
    if (!d->by_sum) {
        totals(me, threads, d);
        return;
    }
    if (threads > 1 && alone) packed = gathered + CHUNK * LONGEST;
    for (long k = 0; !k || k < d->K; k += block) {
        const long K = d->K - k < block ? d->K - k : block, size = (K + 1) * WIDE;
        if (!alone) meet(J, me, round); /* nobody reads the block before any more */
        for (long i = alone ? 0 : me; i < 4 * tiles; i += alone ? 1 : threads)
            pack(packed + i / 4 * size + i % 4 * VL, d->b + (d->transposed ? k * d->ldb : k), d->ldb,
                 d->transposed, k ? 0 : d->bias, i * VL, d->N - i * VL, K, WIDE);
        if (!alone) meet(J, me, round);
        for (long m = from; m < to; m += CHUNK) {
            const long M = to - m < CHUNK ? to - m : CHUNK;
            const real *a = d->a + m * d->by_row + k * d->by_sum;
            long by_row = d->by_row, by_sum = d->by_sum;
            if (by_sum != 1) {
                gather(gathered, a, by_sum, M, K);
                a = gathered, by_row = 1, by_sum = CHUNK;
            }
            for (long n = 0; n < d->N; n += WIDE)
                rows_by_tile(packed + n / WIDE * size, a, by_row, by_sum, M, K,
                             d->c + m * d->ldc + n, d->ldc, d->N - n, d->add || k);
        }
    }
}

const library products = {pack, direct, matrices, {0, multiply1, multiply2, multiply3, multiply4_few}};
