"""Derivatives of any order for fused functions: the first is theirs, the others are composed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def further(grads: Sequence[Tensor | None]) -> bool:
    """Whether a backward pass is itself differentiated, or run for many gradients at once."""
    within = torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]
    if within or torch.is_grad_enabled():
        return True
    # With is_grads_batched a gradient stands for many of them and has no memory of its own.
    stored = torch._C._has_storage  # pyright: ignore[reportPrivateUsage]
    return not all(grad is None or stored(grad) for grad in grads)


def composed(
    function: Callable[..., tuple[Tensor, ...]],
    tensors: Sequence[Tensor],
    grads: Sequence[Tensor | None],
) -> Sequence[Tensor]:
    """The vector–Jacobian product of a function in plain torch, itself differentiable.

    A fused function's backward pass comes here when its own derivative may be asked for. It is not
    autograd.grad of the saved tensors: where one of them depends on another, that would count the
    path between them twice.
    """
    outputs, pull, *_ = torch.func.vjp(function, *tensors)
    cotangents = tuple(
        torch.zeros_like(output) if grad is None else grad
        for grad, output in zip(grads, outputs, strict=True)
    )
    return pull(cotangents)
