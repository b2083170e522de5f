"""A call on a GPU: each pass of its loop is one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from torch import Tensor

from metarnn.engines.autograd import EngineFailure, LoopResults, Tensors
from metarnn.engines.engine import FusedEngine
from metarnn.engines.prologue import InputProjection, LoopCall
from metarnn.engines.triton.loops import (
    BackwardCall,
    CallShape,
    ForwardCall,
    LoopKernels,
    backward_call,
    forward_call,
)
from metarnn.engines.weight_gradients import Sums, loop_gradients


class TritonCall(LoopCall):
    """A loop at one size: from the initial states and `plan.loop_arguments`."""

    def __init__(self, engine: FusedEngine, loop: LoopKernels, shape: CallShape) -> None:
        self.engine, self.loop, self.shape, self.plan = engine, loop, shape, loop.plan
        self.steps, self.batch, self.dtype = shape.steps, shape.batch, shape.dot
        self.count = len(loop.plan.states)
        keys = [None] * self.count + self.plan.loop_arguments
        # Products of x, the largest tensors of all, are kept only if the backward pass reads them.
        self._keeps = [key not in loop.forgotten for key in keys]

    @property
    def saved_count(self) -> int:
        return self.count + len(self.loop.saved)

    def kept(self, arguments: Sequence[Tensor]) -> Tensors:
        pairs = zip(arguments, self._keeps, strict=True)
        return [argument if keep else None for argument, keep in pairs]

    def launch(self, arguments: Sequence[Tensor], train: bool, dry: bool = False) -> LoopResults:
        # Under torch.compile sizes are symbols: nothing of them is kept.
        make = ForwardCall if dry else forward_call
        call = make(self.loop, self.shape, train)
        return call.results(call.run(arguments, dry))

    def loop_backward(
        self,
        arguments: Any,
        states: Sequence[Tensor],
        saved: Sequence[Tensor],
        gradients: Tensors,
        needed: Sequence[bool],
        dry: bool = False,
        sums: Sums | None = None,
    ) -> list[Tensor | None]:
        make, count = BackwardCall if dry else backward_call, self.count
        call = make(self.loop, self.shape)
        tensors = (*arguments[count:], *states, *saved, *call.result_gradients(gradients, own=dry))
        # Hooks may have unpacked something that lies in memory another way.
        given = [
            t
            if t is None or (t.is_contiguous() and not t.is_neg())
            else t.resolve_neg().contiguous()
            for t in tensors
        ]
        written = call.run(given, dry)
        outputs, adjoints = call.outputs(written), written[:count]
        return loop_gradients(
            self.plan, self.steps, arguments, states, outputs, adjoints, needed, sums
        )

    def give_up(self, error: EngineFailure) -> None:
        self.engine.give_up(error)


triton_call = lru_cache(maxsize=4096)(TritonCall)


@lru_cache(maxsize=4096)
def projected_call(engine: FusedEngine, loop: LoopKernels, shape: CallShape) -> InputProjection:
    return InputProjection(triton_call(engine, loop, shape), loop.forgotten)
