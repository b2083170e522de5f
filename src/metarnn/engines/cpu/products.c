/* What all programs share, compiled once: products of rows of x by a tile of packed columns. */

/* A square of VL rows, turned: log2(VL) times the rows of one half are put between those of the
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

/* Columns of a matrix W [outputs, inputs] (or of its transpose) for a product's tile: for each
   input k the nv vectors of weights that meet it, then the biases before them. */
static void pack(real *to, const real *w, long ld, long transposed,
          const real *bias, long first, long count, long K, long stride) {
    for (long i = 0; i < VL; i++) to[i] = bias && i < count ? bias[first + i] : 0;
    to += stride;
    if (transposed) {
        for (long k = 0; k < K; k++) *(vu *)(to + k * stride) = load(w + k * ld + first, count);
    } else {
        for (long k = 0; k < K; k += VL) {
            v rows[VL];
            for (long i = 0; i < VL; i++)
                rows[i] = i < count ? load(w + (first + i) * ld + k, K - k) : V(0);
            transpose(rows);
            for (long i = 0; i < VL && i < K - k; i++) *(vu *)(to + (k + i) * stride) = rows[i];
        }
    }
}

/* The sums of four vectors, each as of `lanes`, bit for bit, but side by side. */
static inline void lanes_of_4(v a, v b, v c, v d, real *sums) {
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
    sums[0] = lanes(a), sums[1] = lanes(b), sums[2] = lanes(c), sums[3] = lanes(d);
}

/* Without packing, for a step on its own: each weight is used once, so nothing is worth moving.
   Rows of W are read as they lie, four at a time. */
static void direct(const real *w, long ld, const real *bias, const real *x, long ldx, long K,
                   long B, real *o, long ldo, long count) {
    for (long b = 0; b < B; b++, x += ldx, o += ldo) {
        long j = 0;
        for (; j + 4 <= count; j += 4) {
            const real *r = w + j * ld;
            v a0 = {}, a1 = {}, a2 = {}, a3 = {};
            for (long k = 0; k < K; k += VL) {
                const v y = load(x + k, K - k);
                a0 += y * load(r + k, K - k);
                a1 += y * load(r + ld + k, K - k);
                a2 += y * load(r + 2 * ld + k, K - k);
                a3 += y * load(r + 3 * ld + k, K - k);
            }
            lanes_of_4(a0, a1, a2, a3, o + j);
            for (int i = 0; bias && i < 4; i++) o[j + i] += bias[j + i];
        }
        for (; j < count; j++) {
            v a = {};
            for (long k = 0; k < K; k += VL) a += load(x + k, K - k) * load(w + j * ld + k, K - k);
            o[j] = lanes(a) + (bias ? bias[j] : 0);
        }
    }
}

/* A value that is to stay in a register: left alone, compilers read each weight from memory again
   for each row, and then it is loads, not sums, that a product waits for. */
#if defined(__AVX512F__) || defined(__AVX__)
#define HOLD(x) __asm__("" : "+v"(x))
#else
#define HOLD(x)
#endif
#define EACH _Pragma("GCC unroll 8")

/* R rows of x by NV vectors of columns: R * NV sums stay in registers over the whole length K. */
#define PRODUCT(NV, R)                                                                            \
    static void multiply##NV##_##R(const real *w, const real *x, long ldx, long K, real **o,      \
                                   const long *ld, const long *m, long b) {                       \
        v a[R][NV];                                                                               \
        EACH for (int r = 0; r < R; r++)                                                          \
            EACH for (int c = 0; c < NV; c++) a[r][c] = *(const v *)(w + c * VL);                 \
        w += NV * VL;                                                                             \
        for (long k = 0; k < K; k++, w += NV * VL) {                                              \
            v y[NV];                                                                              \
            EACH for (int c = 0; c < NV; c++) {                                                   \
                y[c] = *(const v *)(w + c * VL);                                                  \
                if (R > 1) HOLD(y[c]);                                                            \
            }                                                                                     \
            EACH for (int r = 0; r < R; r++)                                                      \
                EACH for (int c = 0; c < NV; c++) a[r][c] += y[c] * x[r * ldx + k];               \
        }                                                                                         \
        EACH for (int c = 0; c < NV; c++)                                                         \
            if (m[c] > 0)                                                                         \
                EACH for (int r = 0; r < R; r++) store(o[c] + (b + r) * ld[c], a[r][c], m[c]);    \
    }
#define PRODUCTS(NV, SEVEN, EIGHT)                                                                \
    PRODUCT(NV, 1) PRODUCT(NV, 2) PRODUCT(NV, 3) PRODUCT(NV, 4) PRODUCT(NV, 5) PRODUCT(NV, 6)     \
    static void multiply##NV(const real *w, const real *x, long ldx, long K, long B, real **o,    \
                             const long *ld, const long *m) {                                     \
        static void (*const by_rows[])(const real *, const real *, long, long, real **,           \
                                       const long *, const long *, long) = {                      \
            0, multiply##NV##_1, multiply##NV##_2, multiply##NV##_3, multiply##NV##_4,            \
            multiply##NV##_5, multiply##NV##_6, SEVEN, EIGHT};                                    \
        const long blocks = (B + ROWS(NV) - 1) / ROWS(NV);                                        \
        for (long i = 0, b = 0; i < blocks; i++) {                                                \
            const long rows = (B - b + blocks - i - 1) / (blocks - i);                            \
            by_rows[rows](w, x + b * ldx, ldx, K, o, ld, m, b);                                   \
            b += rows;                                                                            \
        }                                                                                         \
    }
PRODUCT(1, 7) PRODUCT(1, 8) PRODUCTS(1, multiply1_7, multiply1_8)
PRODUCT(2, 7) PRODUCT(2, 8) PRODUCTS(2, multiply2_7, multiply2_8)
PRODUCT(3, 7) PRODUCT(3, 8) PRODUCTS(3, multiply3_7, multiply3_8)
PRODUCTS(4, 0, 0)  /* 4 × 7 sums would not fit */

/* 7 or 8 rows by 4 vectors, in two halves of the columns: so each weight is loaded once, not once
   for each 4 rows. */
#define HALVES(R)                                                                                 \
    __attribute__((unused)) static void halves_##R(const real *w, const real *x, long ldx, long K, \
                                                   real **o, const long *ld, const long *m) {     \
        for (int h = 0; h < 4; h += 2) {                                                          \
            const real *p = w + h * VL;                                                           \
            v a[R][2];                                                                            \
            for (int r = 0; r < R; r++)                                                           \
                for (int c = 0; c < 2; c++) a[r][c] = *(const v *)(p + c * VL);                   \
            p += 4 * VL;                                                                          \
            for (long k = 0; k < K; k++, p += 4 * VL) {                                           \
                v y0 = *(const v *)p, y1 = *(const v *)(p + VL);                                  \
                HOLD(y0);                                                                         \
                HOLD(y1);                                                                         \
                for (int r = 0; r < R; r++) {                                                     \
                    a[r][0] += y0 * x[r * ldx + k];                                               \
                    a[r][1] += y1 * x[r * ldx + k];                                               \
                }                                                                                 \
            }                                                                                     \
            for (int r = 0; r < R; r++)                                                           \
                for (int c = 0; c < 2; c++)                                                       \
                    if (m[h + c] > 0) store(o[h + c] + r * ld[h + c], a[r][c], m[h + c]);         \
        }                                                                                         \
    }
HALVES(7)
HALVES(8)
static void multiply4_few(const real *w, const real *x, long ldx, long K, long B, real **o,
                          const long *ld, const long *m) {
#if defined(__AVX512F__)
    if (B == 7) halves_7(w, x, ldx, K, o, ld, m);
    else if (B == 8) halves_8(w, x, ldx, K, o, ld, m);
    else
#endif
        multiply4(w, x, ldx, K, B, o, ld, m);
}
