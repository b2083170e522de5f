/* Matrix products for all steps, compiled once: rows of x by a tile of packed columns. */

/* Columns of a matrix W [outputs, inputs] (or of its transpose) for a product's tile: for each
   input k the nv vectors of weights that meet it, then the biases before them. */
void pack(real *to, const real *w, long ld, long transposed,
          const real *bias, long first, long count, long K, long stride) {
    for (long i = 0; i < VL; i++) to[i] = bias && i < count ? bias[first + i] : 0;
    to += stride;
    if (transposed) {
        for (long k = 0; k < K; k++) *(vu *)(to + k * stride) = load(w + k * ld + first, count);
    } else {
        for (long k = 0; k < K; k++)
            for (long i = 0; i < VL; i++)
                to[k * stride + i] = i < count ? w[(first + i) * ld + k] : 0;
    }
}

/* R rows of x by NV vectors of columns: R * NV sums stay in registers over the whole length K. */
#define PRODUCT(NV, R)                                                                            \
    static void multiply##NV##_##R(const real *w, const real *x, long K, real **o,                \
                                   const long *ld, const long *m, long b) {                       \
        v a[R][NV];                                                                               \
        for (int r = 0; r < R; r++)                                                               \
            for (int c = 0; c < NV; c++) a[r][c] = *(const v *)(w + c * VL);                      \
        w += NV * VL;                                                                             \
        for (long k = 0; k < K; k++, w += NV * VL) {                                              \
            v y[NV];                                                                              \
            for (int c = 0; c < NV; c++) y[c] = *(const v *)(w + c * VL);                         \
            for (int r = 0; r < R; r++)                                                           \
                for (int c = 0; c < NV; c++) a[r][c] += y[c] * x[r * K + k];                      \
        }                                                                                         \
        for (int r = 0; r < R; r++)                                                               \
            for (int c = 0; c < NV; c++)                                                          \
                if (m[c] > 0) store(o[c] + (b + r) * ld[c], a[r][c], m[c]);                       \
    }
#define PRODUCTS(NV)                                                                              \
    PRODUCT(NV, 1) PRODUCT(NV, 2) PRODUCT(NV, 3) PRODUCT(NV, 4) PRODUCT(NV, 5) PRODUCT(NV, 6)     \
    PRODUCT(NV, 7) PRODUCT(NV, 8)                                                                 \
    void multiply##NV(const real *w, const real *x, long K, long B, real **o, const long *ld,     \
                      const long *m) {                                                            \
        static void (*const by_rows[])(const real *, const real *, long, real **, const long *,   \
                                       const long *, long) = {                                    \
            0, multiply##NV##_1, multiply##NV##_2, multiply##NV##_3, multiply##NV##_4,            \
            multiply##NV##_5, multiply##NV##_6, multiply##NV##_7, multiply##NV##_8};              \
        const long blocks = (B + ROWS(NV) - 1) / ROWS(NV);                                        \
        for (long i = 0, b = 0; i < blocks; i++) {                                                \
            const long rows = (B - b + blocks - i - 1) / (blocks - i);                            \
            by_rows[rows](w, x + b * K, K, o, ld, m, b);                                          \
            b += rows;                                                                            \
        }                                                                                         \
    }
PRODUCTS(1)
PRODUCTS(2)
PRODUCTS(3)
PRODUCTS(4)
