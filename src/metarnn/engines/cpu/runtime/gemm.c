/* Products of whole matrices, before and after a loop over time: C = A B + bias, or C += A B.

   As in BLIS, blocks of KC rows of B are packed into tiles of NR columns, and MC rows of A stay in
   the cache while the tiles pass, MR of them at a time in registers. Each thread has rows of A of
   its own; it packs a small B for itself, and shares the packing of a large one. The order of a sum
   depends on the sizes alone. */

#define NR (4 * VL)

/* R rows of A by a tile, of which `columns` count; sums begin with `start`. */
#define TILE(R)                                                                                   \
    static void tile_##R(const real *start, const real *packed, const real *a, long m_stride,     \
                         long k_stride, long K, real *c, long ldc, long columns,                  \
                         int accumulate) {                                                        \
        v sum[R][4];                                                                              \
        UNROLL for (int r = 0; r < R; r++)                                                        \
            UNROLL for (int i = 0; i < 4; i++) sum[r][i] = *(const v *)(start + i * VL);          \
        for (long k = 0; k < K; k++, packed += NR, a += k_stride) {                               \
            v b[4];                                                                               \
            UNROLL for (int i = 0; i < 4; i++) {                                                  \
                b[i] = *(const v *)(packed + i * VL);                                             \
                if (R > 1) KEEP_IN_REGISTER(b[i]);                                                \
            }                                                                                     \
            UNROLL for (int r = 0; r < R; r++)                                                    \
                UNROLL for (int i = 0; i < 4; i++) sum[r][i] += b[i] * a[r * m_stride];           \
        }                                                                                         \
        UNROLL for (int i = 0; i < 4; i++) {                                                      \
            const long lanes = columns - i * VL;                                                  \
            if (lanes > 0)                                                                        \
                UNROLL for (int r = 0; r < R; r++) {                                              \
                    real *to = c + r * ldc + i * VL;                                              \
                    store(to, accumulate ? load(to, lanes) + sum[r][i] : sum[r][i], lanes);       \
                }                                                                                 \
        }                                                                                         \
    }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)

/* M rows of A by a packed tile: its biases, then its K rows. */
static void rows_by_tile(const real *packed, const real *a, long m_stride, long k_stride, long M,
                         long K, real *c, long ldc, long columns, int accumulate) {
    static void (*const tile[])(const real *, const real *, const real *, long, long, long, real *,
                                long, long, int) = {0,      tile_1, tile_2, tile_3,
                                                    tile_4, tile_5, tile_6};
    static const v zeros[4];
    const long blocks = (M + MR(4) - 1) / MR(4);
    for (long i = 0, m = 0; i < blocks; i++) {
        const long rows = (M - m + blocks - i - 1) / (blocks - i);
        for (long k = 0; !k || k < K; k += MAX_SUM)
            tile[rows](k ? (const real *)zeros : packed, packed + (k + 1) * NR,
                       a + m * m_stride + k * k_stride, m_stride, k_stride,
                       K - k < MAX_SUM ? K - k : MAX_SUM, c + m * ldc, ldc, columns,
                       accumulate || k);
        m += rows;
    }
}

/* Copies M rows of A that lie next to one another, [K, lda], into [K, MC]. */
static void gather(real *to, const real *a, long lda, long M, long K) {
    for (long k = 0; k < K; k++)
        for (long m = 0; m < M; m += VL) store(to + k * MC + m, load(a + k * lda + m, M - m), M - m);
}

static void column_sums(long thread, long threads, const gemm_arguments *g) {
    for (long n = thread * VL; n < g->N; n += threads * VL) {
        const long lanes = g->N - n;
        v total = g->accumulate ? load(g->c + n, lanes) : V(0);
        for (long k = 0; k < g->K; k += MAX_SUM) {
            v sum = {};
            for (long i = k; i < g->K && i < k + MAX_SUM; i++)
                sum += load(g->b + i * g->ldb + n, lanes);
            total += sum;
        }
        store(g->c + n, total, lanes);
    }
}

static void gemm(job *job, long thread, long *phase, const gemm_arguments *g, real *packed_b,
                 real *thread_buffers) {
    const long threads = job->threads, tiles = (g->N + NR - 1) / NR;
    const long begin = g->M * thread / threads, end = g->M * (thread + 1) / threads;
    const long block = g->K <= KC_MAX ? g->K + !g->K : KC;
    const int alone = threads == 1 || (g->K <= block && (g->K + 1) * tiles * NR <= PRIVATE_B);
    real *gathered = thread_buffers + thread * (MC * KC_MAX + PRIVATE_B);
    if (!g->c) return; /* a gradient that nobody asks for */
    if (!g->k_stride) {
        column_sums(thread, threads, g);
        return;
    }
    if (threads > 1 && alone) packed_b = gathered + MC * KC_MAX;
    for (long k = 0; !k || k < g->K; k += block) {
        const long K = g->K - k < block ? g->K - k : block, tile_size = (K + 1) * NR;
        if (!alone) barrier_wait(job, thread, phase); /* nobody reads the last block any more */
        for (long i = alone ? 0 : thread; i < 4 * tiles; i += alone ? 1 : threads)
            pack(packed_b + i / 4 * tile_size + i % 4 * VL, g->b + (g->transposed ? k * g->ldb : k),
                 g->ldb, g->transposed, k ? 0 : g->bias, i * VL, g->N - i * VL, K, NR);
        if (!alone) barrier_wait(job, thread, phase);
        for (long m = begin; m < end; m += MC) {
            const long M = end - m < MC ? end - m : MC;
            const real *a = g->a + m * g->m_stride + k * g->k_stride;
            long m_stride = g->m_stride, k_stride = g->k_stride;
            if (k_stride != 1) {
                gather(gathered, a, k_stride, M, K);
                a = gathered, m_stride = 1, k_stride = MC;
            }
            for (long n = 0; n < g->N; n += NR)
                rows_by_tile(packed_b + n / NR * tile_size, a, m_stride, k_stride, M, K,
                             g->c + m * g->ldc + n, g->ldc, g->N - n, g->accumulate || k);
        }
    }
}

const linalg functions = {pack, gemv, gemm, {0, multiply1, multiply2, multiply3, multiply4_few}};
