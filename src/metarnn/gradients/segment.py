"""A stretch of time as a link of a chain: gradients pass through it from its end to its start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.gradients.nested import leaves, tensors
from metarnn.gradients.rule import LossFunction, derivative, take

Adjoint = list[Tensor | None]  # the loss's derivative by each tensor of a state


@dataclass
class Segment:
    """One stretch: its loss, its state before (leaves) and after."""

    value: Tensor
    before: list[Tensor]
    after: list[Tensor]
    state: Any

    def pull(
        self,
        parameters: dict[str, Tensor],
        adjoint: Adjoint | None,
        *,
        value: bool = True,
        keep: bool = False,
    ) -> tuple[dict[str, Tensor], Adjoint]:
        """Gradients by the parameters, and the derivative by the state before, of

            [loss of this stretch, where `value`] + adjoint · (state after)

        With `keep` the stretch can be asked again.
        """
        outputs: list[Tensor] = [self.value] if value else []
        adjoints: list[Tensor | None] = [None] if value else []
        for after, each in zip(self.after, adjoint or (), strict=False):
            if each is not None:
                outputs.append(after)
                adjoints.append(each)
        inputs = [*parameters.values(), *self.before]
        found = derivative(outputs, inputs, adjoints, keep=keep)
        named = zip(parameters, found, strict=False)
        grads = {name: grad for name, grad in named if grad is not None}
        return grads, found[len(parameters) :]


def segment(
    loss: LossFunction, model: nn.Module, stretch: Any, state: Any, notes: list[Any]
) -> Segment:
    """Run a stretch from a state, which is cut off from whatever made it."""
    with torch.enable_grad():
        fresh, before = leaves(state)
        value, after = take(loss(model, stretch, fresh), notes)
    kept = [tensor for tensor in tensors(after) if tensor.is_floating_point()]
    return Segment(value, before, kept, after)


def live(adjoint: Sequence[Tensor | None]) -> bool:
    return any(each is not None for each in adjoint)
