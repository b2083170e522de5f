"""Sums, products, comparisons, choices and powers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor as T

from metarnn.graph.ops.op import Op, Rules, Untraceable
from metarnn.graph.ops.transcendental import exp, log

identity = Op(
    "identity", lambda x: x, vjp=lambda g: g, c="{0}", triton="{0}", onnx="Identity",
    formula="{0}", label="identity",
)  # fmt: skip
add = Op(
    "add", torch.add, arity=2, vjp=(lambda g: g, lambda g: g),
    c="{0} + {1}", triton="{0} + {1}", onnx="Add", label="+", infix=True,
)  # fmt: skip
sub = Op(
    "sub", torch.sub, arity=2, vjp=(lambda g: g, lambda g: -g),
    c="{0} - {1}", triton="{0} - {1}", onnx="Sub", label="−", infix=True,
)  # fmt: skip
mul = Op(
    "mul", torch.mul, (torch.mul, T.mul, T.__mul__, T.__rmul__), arity=2,
    vjp=(lambda g, b: g * b, lambda g, a: g * a),
    c="{0} * {1}", triton="{0} * {1}", onnx="Mul", label="⊙", infix=True,
)  # fmt: skip
div = Op(
    "div", torch.div, (torch.div, T.div, T.__truediv__), arity=2,
    vjp=(lambda g, b: g / b, lambda g, y, b: -(g * y / b)),
    c="{0} / {1}", triton="{0} / {1}", onnx="Div", label="÷", infix=True,
)  # fmt: skip
maximum = Op(
    "max", torch.maximum, (torch.maximum, T.maximum), arity=2,
    vjp=(lambda g, b, a: g - g * (b > a), lambda g, b, a: g * (b > a)),
    c="v_max({0}, {1})", triton="maximum({0}, {1})", onnx="Max",
)  # fmt: skip
minimum = Op(
    "min", torch.minimum, (torch.minimum, T.minimum), arity=2,
    vjp=(lambda g, a, b: g - g * (a > b), lambda g, a, b: g * (a > b)),
    c="v_min({0}, {1})", triton="minimum({0}, {1})", onnx="Min",
)  # fmt: skip
greater = Op(  # 1 where a > b, else 0
    "greater", lambda a, b: (a > b).to(a.dtype), (torch.gt, T.gt, T.__gt__), arity=2,
    vjp=(lambda g: g.constant(0), lambda g: g.constant(0)),
    c="v_greater({0}, {1})", triton="greater({0}, {1})", label=">", infix=True,
    onnx=lambda o, a, b: o.add("Cast", o.add("Greater", a, b), to=1),
)  # fmt: skip
where = Op(
    "where", lambda mask, a, b: torch.where(mask != 0, a, b), (torch.where,), arity=3,
    vjp=(lambda g: g.constant(0), lambda g, a: where(a, g, 0.0), lambda g, a: where(a, 0.0, g)),
    c="v_where({0}, {1}, {2})", triton="tl.where({0} != 0, {1}, {2})",
    onnx=lambda o, mask, a, b: o.add("Where", o.add("Equal", mask, o.number(0.0)), b, a),
)  # fmt: skip
absolute = Op(
    "abs", torch.abs, (torch.abs, T.abs, T.__abs__), vjp=lambda g, x: g * torch.sign(x),
    c="(v)((iv)({0}) & ~SIGN)", triton="tl.abs({0})", onnx="Abs",
    formula="|{0}|", latex=r"\left|{0}\right|", label="abs",
)  # fmt: skip
sqrt = Op(
    "sqrt", torch.sqrt, (torch.sqrt, T.sqrt), vjp=lambda g, y: g / (2 * y), positive=True,
    c="v_sqrt({0})", triton="tl.sqrt_rn({0})", onnx="Sqrt",
    formula="√({0})", latex=r"\sqrt{{{0}}}", ulp=0.5,
    c_source="""
static inline v v_sqrt(v x) {
    for (long i = 0; i < VL; i++) x[i] = IS_DOUBLE ? __builtin_sqrt(x[i]) : __builtin_sqrtf(x[i]);
    return x;
}""",
)  # fmt: skip
power = Op(  # of an exponent that is no whole number; the error grows with |exponent · log x|
    "pow", lambda x, exponent: x**exponent, attributes=("exponent",), positive=True,
    vjp=lambda g, x, exponent: g * (exponent * x ** (exponent - 1)),
    c="v_exp(v_log({0}) * {exponent})", triton="exp(tl.log({0}) * {exponent})",
    onnx=lambda o, x, exponent: o.add("Pow", x, o.number(exponent)),
    formula="pow({0}, {exponent})", latex=r"\left({0}\right)^{{{exponent}}}",
    label="pow {exponent:.4g}",
)  # fmt: skip


def _add(a: Any, b: Any, *, alpha: float = 1) -> Any:
    return add(a, b if alpha == 1 else mul(b, alpha))


def _sub(a: Any, b: Any, *, alpha: float = 1) -> Any:
    return sub(a, b if alpha == 1 else mul(b, alpha))


def _pow(x: Any, exponent: Any) -> Any:
    if not isinstance(exponent, int | float):
        if isinstance(x, int | float):
            if x <= 0:
                raise Untraceable(f"powers of {x!r}: only those of a number above 0 are known")
            return exp(exponent * math.log(x))
        return exp(exponent * log(x))
    if exponent == 0 or not math.isfinite(exponent):
        raise Untraceable(f"the power {exponent!r} of a value: it is the same for all values")
    if exponent < 0 and (exponent == int(exponent) or exponent == -0.5):
        return 1.0 / _pow(x, -exponent)
    if exponent == 0.5:
        return sqrt(x)
    if exponent != int(exponent):
        return power(x, exponent=float(exponent))
    half, odd = divmod(int(exponent), 2)
    if not half:
        return x
    square = _pow(x, half) if half > 1 else x
    return square * square * x if odd else square * square


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    x = x if min is None else maximum(x, min)
    return x if max is None else minimum(x, max)


RULES: Rules = {
    (torch.add, T.add, T.__add__, T.__radd__): _add,
    (torch.sub, T.sub, T.__sub__): _sub,
    (T.__rsub__, torch.rsub): lambda a, b: sub(b, a),
    (torch.neg, T.neg): lambda x: sub(0.0, x),
    (torch.reciprocal, T.reciprocal): lambda x: div(1.0, x),
    (torch.square, T.square): lambda x: mul(x, x),
    (torch.rsqrt, T.rsqrt): lambda x: div(1.0, sqrt(x)),
    (torch.pow, T.pow, T.__pow__): _pow,
    (torch.sign, T.sign): lambda x: sub(greater(x, 0.0), greater(0.0, x)),
    (torch.lt, T.lt, T.__lt__): lambda a, b: greater(b, a),
    (torch.clamp, T.clamp): _clamp,
    (torch.masked_fill, T.masked_fill): lambda x, mask, value: where(mask, value, x),
    (T.to, T.contiguous, T.clone, T.float, torch.clone): lambda x, *_, **__: x,
}
