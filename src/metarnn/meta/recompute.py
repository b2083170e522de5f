"""A function whose inside is not kept for the backward pass but computed again in it.

`torch.utils.checkpoint` cannot do this here: it works by hooks on saved tensors, which
`torch.func.grad` does not allow. So this is a function of its own, whose inputs are explicit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from metarnn.cells import check


def recomputed(run: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """run(*arguments), in memory only of its arguments and results; differentiable once.

    Every tensor with a gradient must be in the arguments. What is drawn inside is drawn the same
    the second time.
    """
    leaves, spec = pytree.tree_flatten(arguments)
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    tensors = [leaves[k] for k in places]
    constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    box: list[Any] = []  # the structure of the results

    def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
        filled = list(constants)
        for k, tensor in zip(places, tensors, strict=True):
            filled[k] = tensor
        results, shape = pytree.tree_flatten(run(*pytree.tree_unflatten(filled, spec)))
        box[:] = [shape]
        return tuple(results)

    results = _Again.apply(flat, *tensors)
    assert isinstance(results, tuple)
    return pytree.tree_unflatten(list(results), box[0])


class _Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flat: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> Any:
        ctx.flat, ctx.random = flat, _random(tensors)
        ctx.save_for_backward(*tensors)
        with torch.enable_grad():  # without a leaf that needs it this keeps nothing
            results = flat(*[t.detach() for t in tensors])
        if any(result.requires_grad for result in results):
            why = "all tensors that need a gradient in params, with checkpoint"
            check.refuse("loss", "with a tensor of its own that needs a gradient", why)
        return results

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        needed = ctx.needs_input_grad[1:]
        inputs = [
            t.detach().requires_grad_(need)
            for t, need in zip(ctx.saved_tensors, needed, strict=True)
        ]
        now = _random(inputs)
        _put(ctx.random)
        try:
            with torch.enable_grad():
                results = ctx.flat(*inputs)
        finally:
            _put(now)
        pairs = [(r, g) for r, g in zip(results, gradients, strict=True) if r.requires_grad]
        wanted = [t for t, need in zip(inputs, needed, strict=True) if need]
        found = iter(
            torch.autograd.grad(
                [r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True
            )
        )
        return (None, *(next(found) if need else None for need in needed))


def _random(tensors: Any) -> dict[Any, Tensor]:
    """The state of the generators of the devices in use."""
    devices = {t.device for t in tensors if t.is_cuda}
    return {"cpu": torch.get_rng_state()} | {d: torch.cuda.get_rng_state(d) for d in devices}


def _put(states: dict[Any, Tensor]) -> None:
    for device, state in states.items():
        if device == "cpu":
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, device)
