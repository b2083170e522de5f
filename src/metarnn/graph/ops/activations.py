"""Functions that bend: all but relu are written with other operations."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor as T
from torch.nn import functional as F

from metarnn.graph.ops.arithmetic import absolute, maximum, minimum
from metarnn.graph.ops.op import Op, Rules, Untraceable
from metarnn.graph.ops.transcendental import erf, expm1, sigmoid, softplus, tanh

relu = Op(
    "relu", torch.relu, (torch.relu, T.relu, F.relu), vjp=lambda g, x: g * (x > 0),
    c="v_relu({0})", triton="maximum({0}, 0.0)", onnx="Relu",
)  # fmt: skip


def _gelu(x: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + tanh(inner))
    if approximate != "none":
        raise Untraceable(f"gelu with approximate={approximate!r}: expected 'none' or 'tanh'")
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def _elu(x: Any, alpha: float = 1.0) -> Any:
    return relu(x) + alpha * expm1(minimum(x, 0.0))


def _selu(x: Any) -> Any:
    return 1.0507009873554804934193349852946 * _elu(x, 1.6732632423543772848170429916717)


def _softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    if beta <= 0 or threshold < 20:
        raise Untraceable(
            f"softplus with beta={beta} and threshold={threshold}: expected a beta above 0 and a "
            "threshold from 20 on, where it is smooth"
        )
    return softplus(x) if beta == 1 else softplus(x * beta) * (1 / beta)


def _hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    return minimum(max_val, maximum(min_val, x))  # in this order flat at the edges, as in torch


def _hardsigmoid(x: Any) -> Any:
    return _hardtanh(x + 3.0, 0.0, 6.0) * (1 / 6)


RULES: Rules = {
    (F.softplus,): _softplus,
    (F.logsigmoid,): lambda x: -softplus(-x),
    (F.silu,): lambda x: x * sigmoid(x),
    (F.mish,): lambda x: x * tanh(softplus(x)),
    (F.gelu,): _gelu,
    (F.elu,): _elu,
    (F.selu, torch.selu): _selu,
    (F.celu, torch.celu): lambda x, alpha=1.0: relu(x) + alpha * expm1(minimum(x, 0.0) / alpha),
    (F.leaky_relu,): lambda x, negative_slope=0.01: relu(x) + negative_slope * minimum(x, 0.0),
    (F.hardtanh,): _hardtanh,
    (F.relu6,): lambda x: _hardtanh(x, 0.0, 6.0),
    (F.hardsigmoid,): _hardsigmoid,
    (F.hardswish,): lambda x: x * _hardsigmoid(x),
    (F.softsign,): lambda x: x / (1 + absolute(x)),
}
