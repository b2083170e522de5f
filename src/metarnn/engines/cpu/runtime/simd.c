/* Vectors and functions of them and of rows. REAL and IS_DOUBLE are defined before this. */
#include <stdint.h>
#include <string.h>

typedef REAL real;
#if IS_DOUBLE
typedef int64_t whole;
#else
typedef int32_t whole;
#endif

/* MR(nv): rows that a product takes at once by nv vectors of columns, so that sums and operands fit
   into the registers. */
#if defined(__AVX512F__)
#define BYTES 64
#define MR(nv) ((nv) == 4 ? 6 : 8)
#elif defined(__AVX__)
#define BYTES 32
#define MR(nv) ((nv) == 4 ? 2 : (nv) == 3 ? 3 : (nv) == 2 ? 5 : 8)
#else
#define BYTES 16
#define MR(nv) ((nv) == 4 ? 2 : (nv) == 3 ? 3 : (nv) == 2 ? 5 : 8)
#endif
#define VL ((long)(BYTES / sizeof(real)))

typedef real v __attribute__((vector_size(BYTES)));
typedef whole iv __attribute__((vector_size(BYTES)));
typedef real vu __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias)); /* unaligned */

#define V(x) ((v){} + (real)(x))
#define SIGN ((iv){} + (whole)((uint64_t)1 << (8 * sizeof(whole) - 1)))
#define SEL(mask, a, b) ((v)(((iv)(mask) & (iv)(a)) | (~(iv)(mask) & (iv)(b))))

/* The values at p, as far as the lanes reach, then zeros. */
static inline v load(const real *p, long lanes) {
    if (__builtin_expect(lanes >= VL, 1)) return *(const vu *)p;
    v x = {};
    for (long i = 0; i < lanes; i++) x[i] = p[i];
    return x;
}
static inline void store(real *p, v x, long lanes) {
    if (__builtin_expect(lanes >= VL, 1)) *(vu *)p = x;
    else for (long i = 0; i < lanes; i++) p[i] = x[i];
}

#if IS_DOUBLE
#define BITS 52
#define BIAS 1023
#define LOWEST -708.0 /* exp of it is still a normal number */
#define FLAT 20.0 /* tanh of it rounds to 1 */
#else
#define BITS 23
#define BIAS 127
#define LOWEST -87.0f
#define FLAT 10.0f
#endif

static inline v clamp(v x, real lo, real hi) { return SEL(x < lo, V(lo), SEL(x > hi, V(hi), x)); }
static inline v power_of_2(iv n) { return (v)((n + BIAS) << BITS); }

/* exp(x) = 2^n (1 + q): n = round(x / ln 2), q = exp(r) - 1 by its Taylor series, |r| <= ln 2 / 2,
   where the first term left out is below half a unit in the last place. NaN gives q = NaN. */
static inline v reduced(v x, iv *power) {
#if IS_DOUBLE
    const real shift = 0x1.8p52, ln2a = 0x1.62e42fefap-1, ln2b = 0x1.cf79abc9e3b3ap-40;
#else
    const real shift = 0x1.8p23f, ln2a = 0x1.62ep-1f, ln2b = 0x1.0bfbe8p-15f;
#endif
    const v n = (x * (real)1.4426950408889634074 + shift) - shift;
    const v r = (x - n * ln2a) - n * ln2b;
#if IS_DOUBLE
    v p = V(1.6059043836821613e-10);
    p = p * r + 2.08767569878681e-09;
    p = p * r + 2.505210838544172e-08;
    p = p * r + 2.755731922398589e-07;
    p = p * r + 2.7557319223985893e-06;
    p = p * r + 2.48015873015873e-05;
    p = p * r + 1.984126984126984e-04;
    p = p * r + 1.3888888888888889e-03;
    p = p * r + 8.333333333333333e-03;
#else
    v p = V(1.984126984126984e-04f);
    p = p * r + 1.3888888888888889e-03f;
    p = p * r + 8.333333333333333e-03f;
#endif
    p = p * r + (real)4.1666666666666664e-02;
    p = p * r + (real)1.6666666666666666e-01;
    p = p * r + (real)0.5;
    *power = __builtin_convertvector(n, iv);
    return (p * r) * r + r;
}

/* Error at most 2 units in the last place; below the smallest normal number the result is 0. */
static inline v v_exp(v x) {
#if IS_DOUBLE
    const real hi = 709.78271289338397, lo = -708.39641853226408;
#else
    const real hi = 88.7228390f, lo = -87.3365447f;
#endif
    iv n;
    const v q = reduced(clamp(x, lo, hi), &n);
    const iv half = n >> 1; /* in two factors: n may be one more than the largest exponent */
    const v y = ((q + (real)1) * power_of_2(half)) * power_of_2(n - half);
    return SEL(x < lo, V(0), SEL(x > hi, V(__builtin_inf()), y));
}

/* Error at most 3 units in the last place; below exp(LOWEST) the result is 0. */
static inline v v_sigmoid(v x) {
    iv n;
    const v q = reduced(clamp(-x, LOWEST, -LOWEST), &n), s = power_of_2(n);
    return SEL(x < LOWEST, V(0), (real)1 / ((real)1 + (q * s + s)));
}

/* tanh |x| = -e / (2 + e), e = exp(-2|x|) - 1 = 2^n q + (2^n - 1), which does not cancel near 0.
   Error at most 4 units in the last place. */
static inline v v_tanh(v x) {
    const iv sign = (iv)x & SIGN;
    const v a = (v)((iv)x ^ sign);
    iv n;
    const v q = reduced((real)-2 * SEL(a > FLAT, V(FLAT), a), &n), s = power_of_2(n);
    const v e = q * s + (s - (real)1);
    return (v)((iv)(-e / ((real)2 + e)) | sign);
}

/* log(1 + e^x) = max(x, 0) + log(1 + y), y = e^-|x|, log(1 + y) = 2 artanh(y / (2 + y)). */
static inline v v_softplus(v x) {
    v y = v_exp(SEL(x < 0, x, -x));
    v s = y / (y + (real)2), q = s * s, p = V(0);
    for (int k = IS_DOUBLE ? 35 : 17; k > 0; k -= 2) p = p * q + (real)1 / k;
    return SEL(x < 0, V(0), x) + (real)2 * s * p;
}

static inline v v_relu(v x) { return SEL(x < 0, V(0), x); }
static inline v v_max(v a, v b) { return SEL((a > b) | (a != a), a, b); }
static inline v v_min(v a, v b) { return SEL((a < b) | (a != a), a, b); }
static inline v v_greater(v a, v b) { return SEL(a > b, V(1), V(0)); }
static inline v v_where(v m, v a, v b) { return SEL(m != 0, a, b); }

/* Operations on whole rows. The order of summation depends on the width alone. */
static inline real sum_lanes(v x) {
    real a[VL];
    *(vu *)a = x;
    for (long half = VL / 2; half; half /= 2)
        for (long i = 0; i < half; i++) a[i] += a[i + half];
    return a[0];
}
/* In four sums side by side: one alone would wait for each of its additions. */
__attribute__((unused)) static real row_sum(const real *x, long n) {
    v s[4] = {};
    long i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL)
        for (int c = 0; c < 4; c++) s[c] += *(const vu *)(x + i + c * VL);
    for (; i < n; i += VL) s[0] += load(x + i, n - i);
    return sum_lanes((s[0] + s[1]) + (s[2] + s[3]));
}
__attribute__((unused)) static void row_softmax(real *y, const real *x, long n) {
    real top = x[0], sum = 0;
    for (long i = 1; i < n; i++) top = x[i] > top || x[i] != x[i] ? x[i] : top;
    for (long i = 0; i < n; i += VL) store(y + i, v_exp(load(x + i, n - i) - top), n - i);
    sum = row_sum(y, n);
    for (long i = 0; i < n; i += VL) store(y + i, load(y + i, n - i) / sum, n - i);
}
__attribute__((unused)) static real row_rstd(const real *x, long n, real eps, real *mean) {
    v s[4] = {};
    real m = row_sum(x, n) / n;
    long i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL)
        for (int c = 0; c < 4; c++) {
            const v d = *(const vu *)(x + i + c * VL) - m;
            s[c] += d * d;
        }
    for (; i < n; i += VL) {
        v d = load(x + i, n - i) - m;
        if (n - i < VL)
            for (long j = n - i; j < VL; j++) d[j] = 0;
        s[0] += d * d;
    }
    *mean = m;
    const real sum = sum_lanes((s[0] + s[1]) + (s[2] + s[3]));
#if IS_DOUBLE
    return 1 / __builtin_sqrt(sum / n + eps);
#else
    return 1 / __builtin_sqrtf(sum / n + eps);
#endif
}
__attribute__((unused)) static real row_norm(real *y, const real *x, long n, real eps) {
    real mean, r = row_rstd(x, n, eps, &mean);
    for (long i = 0; i < n; i += VL) store(y + i, (load(x + i, n - i) - mean) * r, n - i);
    return r;
}
__attribute__((unused)) static void row_cumsum(real *y, const real *x, long n, int back) {
    real s = 0;
    for (long i = 0; i < n; i++) {
        long j = back ? n - 1 - i : i;
        y[j] = s += x[j];
    }
}
