"""The loop together with the products of x that drive it, as one differentiable function.

So it is for most cells: an LSTM's loop reads W x + b, nothing else comes before it. Each of its
passes is one call of generated C.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.anyorder import composed, further
from metarnn.engines.composition import driven_composition
from metarnn.engines.cpu.memory import plain
from metarnn.engines.cpu.passes import Back, Forward, Size, back_pass, forward_pass
from metarnn.engines.plan import Plan

NOTHING = torch.empty(0, device="cpu")  # its address is 0


class Driven:
    """A loop at one size, with the products before and after it."""

    def __init__(self, size: Size) -> None:
        self._size = size

    @cached_property
    def _infer(self) -> Forward:
        return forward_pass(self._size, "infer", driven=True)

    @cached_property
    def _train(self) -> tuple[Forward, Back]:
        there = forward_pass(self._size, "train", driven=True)
        return there, back_pass(self._size, driven=True)

    def __call__(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Final states [1, B, n], then kept outputs [T, B, n], from states and `plan.driven`."""
        if torch.is_grad_enabled():
            for tensor in tensors:
                if tensor.requires_grad:
                    return _Driven.apply(*self._train, *tensors)  # type: ignore[return-value]
        made = self._infer
        room = made.room()
        made.run([*tensors, *room])
        return made.results(room)


class _Driven(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, there: Forward, back: Back, *tensors: Tensor) -> Any:
        room = there.room()
        there.run([*tensors, *room])
        ctx.save_for_backward(*tensors, *there.saved(room))
        ctx.back = back
        ctx.set_materialize_grads(False)
        return tuple(there.results(room))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        back, saved = ctx.back, ctx.saved_tensors
        plan, count = back.plan, back.count
        if further(grads):
            tensors = saved[: count + len(plan.driven)]
            return None, None, *composed(_plain(plan, back.steps, back.batch), tensors, grads)
        room = back.room()
        found = back.gradients(room, ctx.needs_input_grad[2 + count :])
        places = [NOTHING if place is None else place for place in found]
        # Hooks may have unpacked something that lies in memory another way.
        read = [plain(tensor) for tensor in saved[count:]]
        back.run([*read, *back.given(grads), *room, *places])
        return None, None, *room[back.finals], *back.summed(found)


def _plain(plan: Plan, steps: int, batch: int) -> Any:
    """The same in plain torch: its derivatives are autograd's."""
    count = len(plan.loop.states)

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        results = driven_composition(plan, steps, batch, tensors)
        return *(final.unsqueeze(0) for final in results[:count]), *results[count:]

    return run


driven = lru_cache(maxsize=4096)(Driven)
