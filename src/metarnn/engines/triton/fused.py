"""The loop as one differentiable function of states, inputs and weights, on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.anyorder import composed, further
from metarnn.engines.composition import Found, Totals, composition, gradients, results
from metarnn.engines.plan import Plan
from metarnn.engines.triton import CannotLaunch, give_up
from metarnn.engines.triton.emit import emit
from metarnn.engines.triton.kernel import Kernel
from metarnn.engines.triton.passes import Back, Forward, Size, back_pass, forward_pass
from metarnn.engines.triton.program import Key
from metarnn.engines.triton.scan import Scan, scannable
from metarnn.graph import Graph, preactivations


@dataclass(frozen=True)
class Call:
    """One call of a loop: its sizes, and the type of number that products are computed in."""

    steps: int
    batch: int
    dot: torch.dtype
    hoisted: Callable[[], dict[Key, Tensor]] = dict  # computes again what was hoisted
    share: int = 1  # how many loops share the GPU
    stacked: bool = False  # whether final states are [1, B, n]; see `Size`

    def size(self, state: Sequence[Tensor], stacked: bool = False) -> Size:
        types, device = tuple(part.dtype for part in state), state[0].device
        return Size(self.steps, self.batch, types, self.dot, device, self.share, stacked)


class Loop:
    """A plan's loop as kernels."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.graph = plan, plan.loop
        self.saved = preactivations(self.graph)
        self.graphs = plan.graphs(self.saved)

    @cached_property
    def keys(self) -> list[Key]:
        """What the fused function's arguments are."""
        return [*(("state", str(i)) for i in range(len(self.graph.states))), *self.plan.sources]

    @cached_property
    def forgotten(self) -> set[Key]:
        """Hoisted values that the backward pass does not read."""
        read = self.graphs.back.graph.named("input")
        return {("input", name) for name in self.plan.parts.hoisted if name not in read}

    @cached_property
    def infer(self) -> Kernel | Scan:
        return _kernel(self.graphs.infer, kept=frozenset(self.plan.shared.values()))

    @cached_property
    def train(self) -> Kernel | Scan:
        every = frozenset(range(len(self.graph.states)))
        return _kernel(self.graphs.train, kept=every)

    @cached_property
    def reverse(self) -> Kernel | Scan:
        return _kernel(self.graphs.back.graph, backward=True)


def _kernel(
    graph: Graph, *, backward: bool = False, kept: frozenset[int] = frozenset()
) -> Kernel | Scan:
    if scannable(graph):
        return Scan(graph, backward=backward, kept=kept)
    return Kernel(emit(graph, backward=backward, kept=kept))


@lru_cache(maxsize=512)
def loop(plan: Plan) -> Loop:
    return Loop(plan)


def fused(plan: Plan, call: Call, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Final states [B, n], then kept outputs [T, B, n], from states and `plan.sources`."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return _Fused.apply(plan, call, *tensors)  # type: ignore[return-value]
    return results(plan, forward(loop(plan), call, tensors, train=False))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, call: Call, *tensors: Tensor) -> Any:
        made = loop(plan)
        found = forward(made, call, tensors, train=True)
        ctx.plan, ctx.call = plan, call
        # What is hoisted (the drive, the largest of all) is kept only if the backward pass reads
        # it. For derivatives of derivatives it is computed again.
        pairs = zip(made.keys, tensors, strict=True)
        kept = [None if key in made.forgotten else t for key, t in pairs]
        ctx.save_for_backward(*kept, *found.states, *found.saved)
        ctx.set_materialize_grads(False)
        return tuple(results(plan, found))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        plan, call = ctx.plan, ctx.call
        count = len(plan.loop.states)
        given, saved = count + len(plan.sources), ctx.saved_tensors  # which hooks unpack once
        tensors, rest = saved[:given], saved[given:]
        made = loop(plan)
        if further(grads):
            return None, None, *_composed(made, call, tensors, grads)
        needed = ctx.needs_input_grad[2:]
        try:
            found = backward(made, call, tensors, rest[:count], rest[count:], grads, needed)
        except CannotLaunch as error:
            give_up(error)
            found = _composed(made, call, tensors, grads)
        return None, None, *found


def _composed(
    made: Loop, call: Call, tensors: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> Sequence[Tensor]:
    """The gradients in plain torch, which can be differentiated again."""
    again = call.hoisted() if made.forgotten else {}
    known = [again.get(key, t) for key, t in zip(made.keys, tensors, strict=True)]
    return composed(lambda *t: composition(made.plan, call.steps, call.batch, t), known, grads)


def forward(
    made: Loop, call: Call, tensors: Sequence[Tensor], *, train: bool, dry: bool = False
) -> Found:
    """Run the loop; with `dry` only make room for what it would find."""
    make = Forward if dry else forward_pass  # of sizes that are no numbers nothing is kept
    there = make(made, call.size(tensors[: len(made.graph.states)], call.stacked), train)
    return there.found(there.run(tensors, dry))


def backward(
    made: Loop,
    call: Call,
    tensors: Sequence[Tensor],
    states: Sequence[Tensor],
    saved: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
    dry: bool = False,
    totals: Totals | None = None,
) -> list[Tensor | None]:
    """The gradients of the loop's tensors, as far as they are needed."""
    make, count = Back if dry else back_pass, len(states)
    back = make(made, call.size(tensors[:count]))
    given = (*tensors[count:], *states, *saved, *back.grads(grads, own=dry))
    # Hooks may have unpacked something that lies in memory another way.
    given = [
        t if t is None or (t.is_contiguous() and not t.is_neg()) else t.resolve_neg().contiguous()
        for t in given
    ]
    room = back.run(given, dry)
    outputs, adjoints = back.outputs(room), room[:count]
    return gradients(made.plan, call.steps, tensors, states, outputs, adjoints, needed, totals)
