/* Products of a few rows by a tile of packed columns: the products within a loop over time. */

/* Transposes a square of VL rows: log2(VL) times, the rows of one half are put between those of the
   other. */
static inline void transpose(v *rows) {
#if defined(__GNUC__) && !defined(__clang__)
    iv low;
    for (long i = 0; i < VL; i++) low[i] = i / 2 + i % 2 * VL;
    const iv high = low + (whole)(VL / 2);
    for (long n = 1; n < VL; n *= 2) {
        v next[VL];
        for (long i = 0; i < VL / 2; i++) {
            next[2 * i] = __builtin_shuffle(rows[i], rows[i + VL / 2], low);
            next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + VL / 2], high);
        }
        for (long i = 0; i < VL; i++) rows[i] = next[i];
    }
#else
    for (long i = 0; i < VL; i++)
        for (long j = 0; j < i; j++) {
            const real x = rows[i][j];
            rows[i][j] = rows[j][i];
            rows[j][i] = x;
        }
#endif
}

/* Packs columns of a matrix W [outputs, inputs] (or of its transpose) for a product's tile: the
   biases, then for each of K inputs the vector of weights that it is multiplied by. */
static void pack(real *packed, const real *w, long ldw, long transposed, const real *bias,
                 long first, long columns, long K, long stride) {
    for (long i = 0; i < VL; i++) packed[i] = bias && i < columns ? bias[first + i] : 0;
    packed += stride;
    if (transposed) {
        for (long k = 0; k < K; k++)
            *(vu *)(packed + k * stride) = load(w + k * ldw + first, columns);
    } else {
        for (long k = 0; k < K; k += VL) {
            v rows[VL];
            for (long i = 0; i < VL; i++)
                rows[i] = i < columns ? load(w + (first + i) * ldw + k, K - k) : V(0);
            transpose(rows);
            for (long i = 0; i < VL && i < K - k; i++) *(vu *)(packed + (k + i) * stride) = rows[i];
        }
    }
}

/* The sums of four vectors, each as of `sum_lanes`, bit for bit, but side by side. */
static inline void sum_lanes_of_4(v a, v b, v c, v d, real *sums) {
#if BYTES == 64 && !IS_DOUBLE && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define MIX __builtin_shufflevector
    const v s = MIX(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                MIX(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    const v t = MIX(c, d, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                MIX(c, d, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    v u = MIX(s, t, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
          MIX(s, t, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    u += MIX(u, u, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    u += MIX(u, u, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    for (int i = 0; i < 4; i++) sums[i] = u[4 * i];
    return;
#endif
#endif
    sums[0] = sum_lanes(a), sums[1] = sum_lanes(b), sums[2] = sum_lanes(c), sums[3] = sum_lanes(d);
}

/* y = W x + b for B rows of x, without packing: in a single step each weight is used once, so
   nothing is worth moving. Rows of W are read where they are, four at a time. */
static void gemv(const real *w, long ldw, const real *bias, const real *x, long ldx, long K, long B,
                 real *y, long ldy, long rows) {
    for (long b = 0; b < B; b++, x += ldx, y += ldy) {
        long j = 0;
        for (; j + 4 <= rows; j += 4) {
            const real *row = w + j * ldw;
            v a0 = {}, a1 = {}, a2 = {}, a3 = {};
            for (long k = 0; k < K; k += VL) {
                const v xk = load(x + k, K - k);
                a0 += xk * load(row + k, K - k);
                a1 += xk * load(row + ldw + k, K - k);
                a2 += xk * load(row + 2 * ldw + k, K - k);
                a3 += xk * load(row + 3 * ldw + k, K - k);
            }
            sum_lanes_of_4(a0, a1, a2, a3, y + j);
            for (int i = 0; bias && i < 4; i++) y[j + i] += bias[j + i];
        }
        for (; j < rows; j++) {
            v a = {};
            for (long k = 0; k < K; k += VL) a += load(x + k, K - k) * load(w + j * ldw + k, K - k);
            y[j] = sum_lanes(a) + (bias ? bias[j] : 0);
        }
    }
}

/* Left alone, compilers read each weight from memory again for each row, and then it is loads, not
   sums, that a product waits for. */
#if defined(__AVX512F__) || defined(__AVX__)
#define KEEP_IN_REGISTER(x) __asm__("" : "+v"(x))
#else
#define KEEP_IN_REGISTER(x)
#endif
#define UNROLL _Pragma("GCC unroll 8")

/* R rows of x by NV vectors of packed columns, of which columns[c] count: R * NV sums stay in
   registers over the whole length K. */
#define MICROKERNEL(NV, R)                                                                        \
    static void multiply##NV##_##R(const real *packed, const real *x, long ldx, long K, real **y, \
                                   const long *ldy, const long *columns, long b) {                \
        v sum[R][NV];                                                                             \
        UNROLL for (int r = 0; r < R; r++)                                                        \
            UNROLL for (int c = 0; c < NV; c++) sum[r][c] = *(const v *)(packed + c * VL);        \
        packed += NV * VL;                                                                        \
        for (long k = 0; k < K; k++, packed += NV * VL) {                                         \
            v w[NV];                                                                              \
            UNROLL for (int c = 0; c < NV; c++) {                                                 \
                w[c] = *(const v *)(packed + c * VL);                                             \
                if (R > 1) KEEP_IN_REGISTER(w[c]);                                                \
            }                                                                                     \
            UNROLL for (int r = 0; r < R; r++)                                                    \
                UNROLL for (int c = 0; c < NV; c++) sum[r][c] += w[c] * x[r * ldx + k];           \
        }                                                                                         \
        UNROLL for (int c = 0; c < NV; c++)                                                       \
            if (columns[c] > 0)                                                                   \
                UNROLL for (int r = 0; r < R; r++)                                                \
                    store(y[c] + (b + r) * ldy[c], sum[r][c], columns[c]);                        \
    }

/* B rows of x by NV vectors, in blocks of at most MR(NV) rows, as even as can be. */
#define MULTIPLY(NV, SEVEN, EIGHT)                                                                \
    MICROKERNEL(NV, 1) MICROKERNEL(NV, 2) MICROKERNEL(NV, 3)                                      \
    MICROKERNEL(NV, 4) MICROKERNEL(NV, 5) MICROKERNEL(NV, 6)                                      \
    static void multiply##NV(const real *packed, const real *x, long ldx, long K, long B,         \
                             real **y, const long *ldy, const long *columns) {                    \
        static void (*const by_rows[])(const real *, const real *, long, long, real **,           \
                                       const long *, const long *, long) = {                      \
            0, multiply##NV##_1, multiply##NV##_2, multiply##NV##_3, multiply##NV##_4,            \
            multiply##NV##_5, multiply##NV##_6, SEVEN, EIGHT};                                    \
        const long blocks = (B + MR(NV) - 1) / MR(NV);                                            \
        for (long i = 0, b = 0; i < blocks; i++) {                                                \
            const long rows = (B - b + blocks - i - 1) / (blocks - i);                            \
            by_rows[rows](packed, x + b * ldx, ldx, K, y, ldy, columns, b);                       \
            b += rows;                                                                            \
        }                                                                                         \
    }
MICROKERNEL(1, 7) MICROKERNEL(1, 8) MULTIPLY(1, multiply1_7, multiply1_8)
MICROKERNEL(2, 7) MICROKERNEL(2, 8) MULTIPLY(2, multiply2_7, multiply2_8)
MICROKERNEL(3, 7) MICROKERNEL(3, 8) MULTIPLY(3, multiply3_7, multiply3_8)
MULTIPLY(4, 0, 0) /* 4 × 7 sums would not fit */

/* 7 or 8 rows by 4 vectors, two columns at a time: so each weight is loaded once, not once for each
   4 rows. */
#define MICROKERNEL_BY_2(R)                                                                       \
    __attribute__((unused)) static void multiply4_##R(const real *packed, const real *x,          \
                                                      long ldx, long K, real **y,                 \
                                                      const long *ldy, const long *columns) {     \
        for (int h = 0; h < 4; h += 2) {                                                          \
            const real *w = packed + h * VL;                                                      \
            v sum[R][2];                                                                          \
            for (int r = 0; r < R; r++)                                                           \
                for (int c = 0; c < 2; c++) sum[r][c] = *(const v *)(w + c * VL);                 \
            w += 4 * VL;                                                                          \
            for (long k = 0; k < K; k++, w += 4 * VL) {                                           \
                v w0 = *(const v *)w, w1 = *(const v *)(w + VL);                                  \
                KEEP_IN_REGISTER(w0);                                                             \
                KEEP_IN_REGISTER(w1);                                                             \
                for (int r = 0; r < R; r++) {                                                     \
                    sum[r][0] += w0 * x[r * ldx + k];                                             \
                    sum[r][1] += w1 * x[r * ldx + k];                                             \
                }                                                                                 \
            }                                                                                     \
            for (int r = 0; r < R; r++)                                                           \
                for (int c = 0; c < 2; c++)                                                       \
                    if (columns[h + c] > 0)                                                       \
                        store(y[h + c] + r * ldy[h + c], sum[r][c], columns[h + c]);              \
        }                                                                                         \
    }
MICROKERNEL_BY_2(7)
MICROKERNEL_BY_2(8)
static void multiply4_few(const real *packed, const real *x, long ldx, long K, long B, real **y,
                          const long *ldy, const long *columns) {
#if defined(__AVX512F__)
    if (B == 7) multiply4_7(packed, x, ldx, K, y, ldy, columns);
    else if (B == 8) multiply4_8(packed, x, ldx, K, y, ldy, columns);
    else
#endif
        multiply4(packed, x, ldx, K, B, y, ldy, columns);
}
