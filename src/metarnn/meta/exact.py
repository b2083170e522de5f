"""Second derivatives of norms and attention that are right for many tasks at once.

The backward pass of torch's `layer_norm`, `batch_norm` and `instance_norm` with gains, once it is
batched by `vmap`, treats the mean and variance that it saved as constants: a gradient through it is
wrong, without an error (2.13; pytorch/functorch#534). That of fused attention has none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode


@contextmanager
def exact() -> Generator[None]:
    """Inside, norms are computed by elementary operations, and attention is not fused."""
    with _Elementary(), sdpa_kernel(SDPBackend.MATH):
        yield


class _Elementary(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        function: Any = RULES.get(func, func)
        return function(*args, **(kwargs or {}))


def _layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    y = _normalised(input, tuple(range(-len(tuple(normalized_shape)), 0)), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not training or running_mean is not None:  # nothing to differentiate; or an error of torch's
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    return _by_channel(_normalised(input, (0, *range(2, input.dim())), eps), weight, bias)


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not use_input_stats or running_mean is not None:
        return F.instance_norm(
            input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
        )
    return _by_channel(_normalised(input, tuple(range(2, input.dim())), eps), weight, bias)


def _normalised(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    apart = x - x.mean(dims, keepdim=True)
    return apart * torch.rsqrt(apart.square().mean(dims, keepdim=True) + eps)


def _by_channel(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    shape = (-1, *[1] * (y.dim() - 2))
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


RULES: dict[Any, Callable[..., Any]] = {
    F.layer_norm: _layer_norm,
    F.batch_norm: _batch_norm,
    F.instance_norm: _instance_norm,
}
