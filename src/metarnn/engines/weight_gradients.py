"""Gradients of weights after a backward loop: one matrix product over all steps for each use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from metarnn.engines.plan import LoopPlan, LoopProduct

History = Callable[[int, torch.dtype], Tensor]  # the values of a state [T · B, n], in a dtype


class Sums:
    """Sums over time and sequences, each computed once: several biases may share a gradient."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}

    def __call__(self, adjoint: Tensor, dtype: torch.dtype) -> Tensor:
        """The sum of [..., n] over all but the last dimension; a tensor of its own each time."""
        key = id(adjoint), dtype
        if key in self._sums:
            return self._sums[key][1].clone()
        total = adjoint.sum(tuple(range(adjoint.dim() - 1)), dtype=dtype)
        self._sums[key] = adjoint, total  # the adjoint, so that no other has its id
        return total


def multiply(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a b, for a gradient of that dtype: on a GPU, sums are not rounded to a narrower one first."""
    if dtype == torch.float32 and a.dtype.itemsize == 2 and a.is_cuda:
        return torch.mm(a, b, out_dtype=dtype)
    return torch.mm(a, b)


def embedded(part: Tensor, like: Tensor, columns: slice) -> Tensor:
    """A matrix shaped `like` another with `part` in some columns and 0 elsewhere."""
    if part.shape == like.shape:
        return part
    matrix = torch.zeros_like(like)
    matrix[:, columns] = part
    return matrix


def loop_gradients(
    plan: LoopPlan,
    steps: int,
    arguments: Sequence[Tensor | None],
    states: Sequence[Tensor],
    outputs: Mapping[str, Tensor],
    adjoints: Sequence[Tensor],
    needed: Sequence[bool],
    sums: Sums | None = None,
) -> list[Tensor | None]:
    """The gradients of a loop's arguments, from what its backward loop has computed.

    Args:
        plan: The cell's plan.
        steps: T.
        arguments: The initial states, then `plan.loop_arguments`.
        states: The histories of the states, [T + 1, B, n] each.
        outputs: The outputs of the backward loop by name; see `graph.reverse`.
        adjoints: The gradients of the initial states.
        needed: Which arguments need a gradient.
        sums: Sums that other gradients may share.
    """
    count = len(adjoints)
    gradients: list[Tensor | None] = list(adjoints)
    sums = Sums() if sums is None else sums
    histories: dict[tuple[int, torch.dtype], Tensor] = {}

    def history(state: int, dtype: torch.dtype) -> Tensor:
        """The states that steps began with: they may be kept wider than products are computed."""
        key = state, dtype
        if key not in histories:
            histories[key] = states[state][:steps].to(dtype).flatten(0, 1)
        return histories[key]

    rows = zip(plan.loop_arguments, arguments[count:], needed[count:], strict=True)
    for key, argument, need in rows:
        kind, name = key
        if not need:
            gradients.append(None)
        elif key in plan.uses:
            assert argument is not None
            gradients.append(_of_map(plan.uses[key], kind, argument, outputs, history, sums))
        else:
            gradient = outputs.get(f"d{kind}.{name}")
            if gradient is not None and kind == "vector" and gradient.dim() > 1:
                assert argument is not None
                gradient = sums(gradient, argument.dtype)
            elif gradient is not None and kind == "context" and gradient.dim() > 2:
                gradient = gradient.sum(0)
            gradients.append(gradient)
    return gradients


def _of_map(
    uses: Sequence[LoopProduct],
    kind: str,
    weight: Tensor,
    outputs: Mapping[str, Tensor],
    history: History,
    sums: Sums,
) -> Tensor | None:
    """The gradient of a map's weight or bias."""
    gradient = None
    for product in uses:
        adjoint = outputs.get(product.adjoint)
        if adjoint is None:
            continue
        if kind == "bias":
            part = sums(adjoint, weight.dtype)
        else:
            if product.state is None:
                argument = outputs[product.argument].to(adjoint.dtype).flatten(0, 1)
            else:
                argument = history(product.state, adjoint.dtype)
            part = multiply(adjoint.flatten(0, 1).t(), argument, weight.dtype)
            part = embedded(part, weight, product.columns)
        gradient = part if gradient is None else gradient + part
    return gradient
