"""Exponentials, logarithms, waves and the error function."""

from __future__ import annotations

import math

import torch
from torch import Tensor as T
from torch.nn import functional as F

from metarnn.graph.ops.op import Op

exp = Op(
    "exp", torch.exp, (torch.exp, T.exp), vjp=lambda g, y: g * y,
    c="v_exp({0})", triton="exp({0})", onnx="Exp", ulp=2,
)  # fmt: skip
sigmoid = Op(
    "sigmoid", torch.sigmoid, (torch.sigmoid, T.sigmoid, F.sigmoid),
    vjp=lambda g, y: g * (y * (1 - y)),
    c="v_sigmoid({0})", triton="sigmoid({0})", onnx="Sigmoid",
    formula="σ({0})", latex=r"\sigma\left({0}\right)", ulp=3,
)  # fmt: skip
tanh = Op(
    "tanh", torch.tanh, (torch.tanh, T.tanh, F.tanh), vjp=lambda g, y: g * (1 - y * y),
    c="v_tanh({0})", triton="tanh({0})", onnx="Tanh", ulp=4,
)  # fmt: skip
softplus = Op(
    "softplus", F.softplus, vjp=lambda g, x: g * sigmoid(x),
    c="v_softplus({0})", triton="softplus({0})", onnx="Softplus", ulp=4,
)  # fmt: skip
log = Op(
    "log", torch.log, (torch.log, T.log), vjp=lambda g, x: g / x, positive=True,
    c="v_log({0})", triton="tl.log({0})", onnx="Log", ulp=2,
    c_source="""
/* x = 2^k (1 + f), (1 + f)² between 1/2 and 2; log(1 + f) = f - f²/2 + s (f²/2 + R(s²)) with
   s = f / (2 + f) and R(q) = q (2/3 + 2/5 q + …), where little is left to round. */
static inline v v_log(v x) {
#if IS_DOUBLE
    const real least = 0x1p-1022, ln2a = 0x1.62e42fefap-1, ln2b = 0x1.cf79abc9e3b3ap-40;
    const iv root = (iv){} + 0x3fe6a09e667f3bcd;
#else
    const real least = 0x1p-126f, ln2a = 0x1.62ep-1f, ln2b = 0x1.0bfbe8p-15f;
    const iv root = (iv){} + 0x3f3504f3;
#endif
    const iv small = x < least;
    const iv bits = (iv)SEL(small, x * (real)((whole)1 << BITS), x) - root;
    const iv k = (bits >> BITS) - (small & BITS);
    const v f = (v)((bits & (((whole)1 << BITS) - 1)) + root) - (real)1;
    const v n = __builtin_convertvector(k, v);
    const v s = f / ((real)2 + f), q = s * s, half = (real)0.5 * f * f;
    v R = V(0);
    for (int i = IS_DOUBLE ? 21 : 9; i > 1; i -= 2) R = (R + (real)2 / i) * q;
    const v y = n * ln2a - ((half - (s * (half + R) + n * ln2b)) - f);
    const v edge = SEL(x == 0, V(-__builtin_inf()), SEL(x < 0, V(__builtin_nan("")), x));
    return SEL((x > 0) & (x < (real)__builtin_inf()), y, edge);
}""",
)  # fmt: skip
expm1 = Op(
    "expm1", torch.expm1, (torch.expm1, T.expm1), vjp=lambda g, y: g * (y + 1),
    c="v_expm1({0})", triton="expm1({0})", ulp=3,
    onnx=lambda o, x: o.add("Mul", o.add("Tanh", o.add("Mul", x, o.number(0.5))),
                            o.add("Add", o.add("Exp", x), o.number(1.0))),
    c_source="""
/* Twice 2^(n-1) q + (2^(n-1) - 1/2), which does not cancel near 0. */
static inline v v_expm1(v x) {
    const real hi = IS_DOUBLE ? 709.78271289338397 : 88.7228390f;
    iv n;
    const v q = reduced(clamp(x, -2 * FLAT, hi), &n), s = power_of_2(n - 1);
    return SEL(x > hi, V(__builtin_inf()), (real)2 * (q * s + (s - (real)0.5)));
}""",
    triton_source="""
@triton.jit
def expm1(x):
    # exp(x) - 1 cancels near 0.
    return tanh(0.5 * x) * (exp(x) + 1)
""",
)  # fmt: skip
erf = Op(
    "erf", torch.erf, (torch.erf, T.erf, torch.special.erf),
    vjp=lambda g, x: g * (2 / math.sqrt(math.pi) * exp(-(x * x))),
    c="v_erf({0})", triton="tl.erf({0})", onnx="Erf", ulp=2,
    c_source="""
/* x + x P(x²) near 0, further out 1 - exp(-a - a Q(a)), a = |x|; the polynomials of least error. */
static inline v v_erf(v x) {
#if IS_DOUBLE
    const real most = 6;
    static const real P[] = {
        -8.28850463434192159e-10, 1.3960823943096985e-8, -1.62592778871538501e-7,
        1.64534768519361233e-6, -1.49251842732577445e-5, 1.20553161213859077e-4,
        -8.54832662053386085e-4, 5.22397761932073282e-3, -2.68661706445810766e-2,
        0.112837916709525642, -0.376126389031837056, 0.128379167095512572};
    static const real Q[] = {
        2.03697802821428284e-13, -1.00641755391797815e-11, 2.34315602476387144e-10,
        -3.41763621446350904e-9, 3.49962816628399138e-8, -2.66892862217035683e-7,
        1.565964268144834e-6, -7.17181038788441763e-6, 2.5523349506283449e-5,
        -6.79630044795060378e-5, 1.17435868427197731e-4, -3.3156380151708036e-5,
        -5.37350417923865979e-4, 1.65886825086680421e-3, -1.8875454389292358e-4,
        -1.9136795103855698e-2, 0.102774996475511273, 0.636619343034997978, 0.128379203340123796};
#else
    const real most = 4.1f;
    static const real P[] = {8.33181439e-5f, -8.13361337e-4f, 5.20022788e-3f, -2.68590726e-2f,
                             0.112836896f, -0.376126333f, 0.128379167f};
    static const real Q[] = {4.80291608e-6f, -4.39273548e-5f, -5.80449721e-5f, 2.95362435e-3f,
                             -2.27122962e-2f, 0.105299080f, 0.635606430f, 0.128555840f};
#endif
    const iv sign = (iv)x & SIGN;
    const v a = (v)((iv)x ^ sign), b = SEL(a > most, V(most), a), q = x * x;
    v p = V(P[0]), r = V(Q[0]);
    for (unsigned i = 1; i < sizeof P / sizeof *P; i++) p = p * q + P[i];
    for (unsigned i = 1; i < sizeof Q / sizeof *Q; i++) r = r * b + Q[i];
    return SEL(a < (real)0.9277, x + x * p, (v)((iv)((real)1 - v_exp(-(b + b * r))) | sign));
}""",
)  # fmt: skip
WAVES = """
/* x = n π/2 + r, |r| <= π/4, π/2 in parts whose products with n are exact. */
static inline v quarter(v x, iv *turns) {
    const double two_over_pi = 0x1.45f306dc9c883p-1, shift = 0x1.8p52;
    const double a = 0x1.921fb544p0, b = 0x1.0b4611a6p-34;
    const double c = 0x1.3198a2ep-69, d = 0x1.b839a252049c1p-104;
    typedef double wide __attribute__((vector_size(VL * sizeof(double))));
    const wide w = __builtin_convertvector(x, wide), n = (w * two_over_pi + shift) - shift;
    *turns = __builtin_convertvector(n, iv);
    return __builtin_convertvector((((w - n * a) - n * b) - n * c) - n * d, v);
}
__attribute__((unused, noinline)) static v far_wave(v x, whole cosine) {
    for (long i = 0; i < VL; i++) x[i] = cosine ? __builtin_cos(x[i]) : __builtin_sin(x[i]);
    return x;
}
/* The series of sin r and cos r, whichever it is of them; beyond 10^6 the C library's functions. */
static inline v wave(v x, whole cosine) {
    long near = 1;
    for (long i = 0; i < VL; i++) near &= x[i] < (real)1e6 && x[i] > (real)-1e6;
    if (__builtin_expect(!near, 0)) return far_wave(x, cosine);
    iv n;
    const v r = quarter(x, &n), q = r * r;
    v s = V(1), c = V(1);
    for (int k = IS_DOUBLE ? 17 : 9; k > 3; k -= 2) s = (real)1 - q * s / (real)(k * (k - 1));
    for (int k = IS_DOUBLE ? 18 : 10; k > 2; k -= 2) c = (real)1 - q * c / (real)(k * (k - 1));
    s = r - r * (q * s / (real)6), c = (real)1 - (real)0.5 * q * c;
    n += cosine;
    return (v)((iv)SEL((n & 1) == 0, s, c) ^ ((n << (8 * sizeof(whole) - 2)) & SIGN));
}"""
sin = Op(
    "sin", torch.sin, (torch.sin, T.sin), vjp=lambda g, x: g * cos(x),
    c="wave({0}, 0)", triton="tl.sin({0})", onnx="Sin", ulp=3, c_source=WAVES,
)  # fmt: skip
cos = Op(
    "cos", torch.cos, (torch.cos, T.cos), vjp=lambda g, x: -(g * sin(x)),
    c="wave({0}, 1)", triton="tl.cos({0})", onnx="Cos", ulp=3,
)  # fmt: skip
