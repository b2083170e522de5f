"""What every gradient rule does: from a chunk of data to gradients, and what the next one needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.gradients.nested import split_time
from metarnn.layers import Recurrent

# (model, chunk, state) -> (the sum of the chunk's losses, the state after it[, a note])
LossFunction = Callable[[nn.Module, Any, Any], tuple[Any, ...]]
Split = Callable[[Any, int], Sequence[Any]]


def ask_model(model: nn.Module, chunk: Any, state: Any) -> tuple[Any, ...]:
    """The loss of a model that computes it itself: `model(chunk, state) -> loss, state`."""
    return model(chunk, state)


@dataclass
class Gradients:
    """What a rule makes of a chunk.

    value    the loss, summed over the chunk
    named    the gradient of each parameter that the loss depends on, by its name
    carried  what the next chunk starts from; in every tensor sequences stand along dimension 1
    notes    what the loss function returned beside loss and state, once for each stretch
    """

    value: Tensor
    named: dict[str, Tensor]
    carried: Any
    notes: list[Any] = field(default_factory=list)

    def put(self, model: nn.Module) -> None:
        """Add the gradients to `.grad`, where optimisers look for them."""
        taken: set[int] = set()
        for name, weight in model.named_parameters():
            if name not in self.named:
                continue
            grad = self.named[name]
            if weight.grad is not None:
                grad = weight.grad + grad
            elif grad.data_ptr() in taken or not grad.is_contiguous():
                # Clipping changes gradients in place: each parameter needs its own.
                grad = grad.clone(memory_format=torch.contiguous_format)
            taken.add(grad.data_ptr())
            weight.grad = grad


class Rule(ABC):
    """How the loss reaches the weights.

        rule = RTRL()
        found = rule.step(model, chunk)
        found = rule.step(model, next_chunk, found.carried)

    Args:
        loss: the sum of losses over the steps of a chunk, and the state after it; by default the
            model itself is asked, `model(chunk, state) -> loss, state`. A first state is None;
            in the tensors of a state sequences stand along dimension 1, as in those of `torch.nn`
        split: how a chunk is cut into stretches of k steps, `split(chunk, k) -> stretches`; by
            default all tensors in it are [T, B, ...]
    """

    def __init__(self, *, loss: LossFunction = ask_model, split: Split = split_time) -> None:
        self.loss, self.split = loss, split

    def examine(self, model: nn.Module) -> None:
        """Refuse a model that this rule is not for."""
        comes_in_pieces(model, self.split, type(self).__name__)

    @abstractmethod
    def step(self, model: nn.Module, chunk: Any, carried: Any = None) -> Gradients:
        """Loss and gradients of a chunk that follows what an earlier one carried over."""


def trained(model: nn.Module) -> dict[str, Tensor]:
    """The parameters to find gradients for."""
    found: dict[str, Tensor] = {name: w for name, w in model.named_parameters() if w.requires_grad}
    if not found:
        check.refuse("model", type(model).__name__, "one with a parameter to train")
    return found


def comes_in_pieces(model: nn.Module, split: Split, rule: str) -> None:
    """Refuse a model whose sequences cannot be cut in time, or that `split` would not cut there."""
    advice = "Use BPTT without checkpoints."
    for module in model.modules():
        if getattr(module, "bidirectional", False):
            check.refuse("model", "bidirectional", f"one direction for {rule}", advice)
        if not getattr(module, "streams", True):
            found = f"a {type(module).__name__} that reads whole sequences"
            check.refuse("model", found, f"one that reads them step by step for {rule}", advice)
        layer = isinstance(module, Recurrent | nn.RNNBase)
        if layer and module.batch_first and split is split_time:
            why = "A layer with the batch first needs a rule with a split=... of its own."
            check.refuse("batch_first", True, f"time first, [T, B, ...], for {rule}", why)


def add(total: dict[str, Tensor], part: dict[str, Tensor]) -> None:
    """Add gradients by name."""
    for name, grad in part.items():  # never in place: autograd hands one tensor to two parameters
        total[name] = total[name] + grad if name in total else grad


def take(result: tuple[Any, ...], notes: list[Any]) -> tuple[Tensor, Any]:
    """Loss and state of what a loss function returned; a note is put down."""
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        check.refuse("loss", type(result).__name__, "a tuple of the summed loss and the state")
    value, state, *note = result
    if not isinstance(value, Tensor) or value.dim():
        shown = list(value.shape) if isinstance(value, Tensor) else value
        check.refuse("loss", shown, "one number, the sum over the chunk's steps")
    notes += note
    return value, state


def derivative(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    adjoints: Sequence[Tensor | None],
    *,
    keep: bool = False,
) -> list[Tensor | None]:
    """Σ adjoint · ∂output/∂input of each input, None where no output depends on it."""
    pairs = [(o, a) for o, a in zip(outputs, adjoints, strict=True) if o.requires_grad]
    if not pairs or not inputs:
        return [None] * len(inputs)
    found = torch.autograd.grad(
        [o for o, _ in pairs],
        list(inputs),
        [torch.ones_like(o) if a is None else a for o, a in pairs],
        retain_graph=keep,
        allow_unused=True,
    )
    return list(found)
