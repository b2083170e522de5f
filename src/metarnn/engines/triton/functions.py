"""What operations call in Triton: see `graph/ops`."""

# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

import triton
import triton.language as tl

from metarnn.engines.triton.engine import interpreted

INTERPRETED = tl.constexpr(interpreted())
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


# What a GPU has one instruction for, good to 2⁻²². Triton's own functions are good to the last bit
# or two and care for the smallest numbers, in up to 20 instructions; a scan has no time for that.


@triton.jit
def exp2(x):
    if INTERPRETED:
        return tl.exp2(x)
    else:
        return _instruction(x, "ex2.approx.ftz.f32 $0, $1;")


@triton.jit
def log2(x):
    if INTERPRETED:
        return tl.log2(x)
    else:
        return _instruction(x, "lg2.approx.ftz.f32 $0, $1;")


@triton.jit
def reciprocal(x):
    if INTERPRETED:
        return 1 / x
    else:
        return _instruction(x, "rcp.approx.ftz.f32 $0, $1;")


@triton.jit
def _instruction(x, TEXT: tl.constexpr):
    return tl.inline_asm_elementwise(TEXT, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def exp(x):
    return exp2(x * LOG2_E)


@triton.jit
def sigmoid(x):
    return reciprocal(1 + exp(-x))


@triton.jit
def tanh(x):
    # (1 - e) / (1 + e) cancels near 0: there the series is exact to the last bit but one.
    e = exp(-2 * tl.abs(x))
    y = (1 - e) * reciprocal(1 + e)
    s = x * x
    series = x * (1 + s * (-1 / 3 + s * (2 / 15 + s * (-17 / 315))))
    return tl.where(s < 0.01, series, tl.where(x < 0, -y, y))


@triton.jit
def softplus(x):
    return tl.maximum(x, 0) + LN_2 * log2(1 + exp(-tl.abs(x)))


@triton.jit
def greater(a, b):
    return tl.where(a > b, 1.0, 0.0)


@triton.jit
def maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
