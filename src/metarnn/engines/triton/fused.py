"""The loop as one differentiable function of states, inputs and weights, on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.anyorder import composed, further
from metarnn.engines.composition import Found, composition, gradients, results
from metarnn.engines.plan import Plan
from metarnn.engines.triton import CannotLaunch, give_up
from metarnn.engines.triton.emit import emit
from metarnn.engines.triton.kernel import Kernel
from metarnn.engines.triton.program import Key, Program
from metarnn.engines.triton.scan import Scan, scannable
from metarnn.engines.zeros import zeros
from metarnn.graph import Graph, preactivations

Arrays = dict[Key, Tensor]


@dataclass(frozen=True)
class Call:
    """One call of a loop: its sizes, and the type of number that products are computed in."""

    steps: int
    batch: int
    dot: torch.dtype
    hoisted: Callable[[], dict[Key, Tensor]] = dict  # computes again what was hoisted
    share: int = 1  # how many loops share the GPU


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
        given = count + len(plan.sources)
        tensors, rest = ctx.saved_tensors[:given], ctx.saved_tensors[given:]
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
    plan = made.plan
    kernel = made.train if train else made.infer
    count = len(made.graph.states)
    arrays: Arrays = dict(zip(plan.sources, tensors[count:], strict=True))
    shared = set(plan.shared.values())
    full = frozenset(i for i in range(count) if train or i in shared)
    states = _states(kernel.program, call, tensors[:count], full, arrays)
    outputs = _call(kernel, arrays, plan, tensors, call, full, dry)
    return Found(
        [arrays["final", str(i)] for i in range(count)],
        [outputs[name] for name, index in plan.results if index is None],
        states,
        [outputs[f"product.{i}"] for i in range(len(made.saved))] if train else [],
    )


def backward(
    made: Loop,
    call: Call,
    tensors: Sequence[Tensor],
    states: Sequence[Tensor],
    saved: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
    dry: bool = False,
) -> list[Tensor | None]:
    """The gradients of the loop's tensors, as far as they are needed."""
    outputs, adjoints = _reverse(made, call, tensors, states, saved, grads, dry)
    return gradients(made.plan, call.steps, tensors, states, outputs, adjoints, needed)


def _states(
    program: Program,
    call: Call,
    initial: Sequence[Tensor],
    full: frozenset[int],
    arrays: Arrays,
    exact: bool = False,
) -> list[Tensor]:
    """Arrays for the states: with a slot for each step, with three slots, or empty."""
    found: list[Tensor] = []
    for i, ((width, has_array, exactly), start) in enumerate(
        zip(program.states, initial, strict=True)
    ):
        dtype = torch.float32 if exact else start.dtype
        arrays["initial", str(i)] = start
        # Not a view of the array: whoever zeroes a state that was returned must not zero an output.
        arrays["final", str(i)] = torch.empty_like(start, dtype=dtype)
        if not has_array:
            found.append(start.new_empty(0))
            continue
        shape = call.steps + 1 if i in full else 3, call.batch, width
        kind = torch.float32 if exactly else dtype
        state = torch.empty(shape, dtype=kind, device=start.device)
        arrays["state", str(i)] = state
        found.append(state)
    return found


def _reverse(
    made: Loop,
    call: Call,
    tensors: Sequence[Tensor],
    states: Sequence[Tensor],
    saved: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    dry: bool,
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """The outputs of the reverse loop, and the adjoints of the initial states."""
    plan, first = made.plan, tensors[0]
    widths = made.graph.states
    arrays: Arrays = dict(zip(plan.sources, tensors[len(widths) :], strict=True))

    def given(grad: Tensor | None, *shape: int) -> Tensor:
        if grad is None:
            return zeros(shape, first.dtype, first.device, own=dry)
        return grad if grad.is_contiguous() else grad.contiguous()

    initial = [given(g, call.batch, n) for g, n in zip(grads, widths, strict=False)]
    for i, value in enumerate(saved):
        arrays["input", f"product.{i}"] = value
    for i, history in enumerate(states):
        arrays["input", f"before.{i}"] = history
    for (name, k), grad in zip(made.graph.outputs.items(), grads[len(widths) :], strict=True):
        shape = call.steps, call.batch, made.graph.nodes[k].width
        arrays["input", f"grad.{name}"] = given(grad, *shape)
    program = made.reverse.program
    _states(program, call, initial, frozenset(), arrays, exact=True)
    outputs = _call(made.reverse, arrays, plan, tensors, call, frozenset(), dry)
    return outputs, [arrays["final", str(i)] for i in range(len(widths))]


def _call(
    kernel: Kernel | Scan,
    arrays: Arrays,
    plan: Plan,
    tensors: Sequence[Tensor],
    call: Call,
    full: frozenset[int],
    dry: bool,
) -> dict[str, Tensor]:
    """Run a kernel; by name its outputs [T, B, n], sums over time [B, n] and, of adjoints of
    vectors, over sequences too [n]."""
    program, device = kernel.program, tensors[0].device

    def empty(*shape: int, dtype: torch.dtype = call.dot) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    outputs = {n: empty(call.steps, call.batch, w) for n, w in program.outputs.items()}
    sums = _sums(program, call.batch, device)
    arrays |= {("output", name): output for name, output in outputs.items()}
    for names, rows in sums:
        arrays |= {("sum", name): total for name, total in zip(names, rows, strict=True)}
    for name, (width, rounded) in program.scratch.items():
        dtype = call.dot if rounded else torch.float32
        arrays["scratch", name] = empty(2, call.batch, width, dtype=dtype)
    weights = {name: arrays["weight", name] for kind, name in plan.sources if kind == "weight"}
    if not dry:
        kernel(
            arrays, weights, call.steps, call.batch,
            full=full, dot=call.dot, device=device, share=call.share,
        )  # fmt: skip
    for names, rows in sums:
        totals = rows.sum(1, dtype=tensors[0].dtype) if names[0].startswith("dvector.") else rows
        outputs |= zip(names, totals, strict=True)
    return outputs | {alias: outputs[name] for alias, name in program.aliases.items()}


def _sums(
    program: Program, batch: int, device: torch.device
) -> list[tuple[tuple[str, ...], Tensor]]:
    """Names of sums of one kind and width, and room for them [k, B, n]."""
    make = torch.zeros if program.rows else torch.empty  # rows are added up in memory
    kinds: dict[tuple[str, int], list[str]] = {}
    for name, width in program.sums.items():
        kinds.setdefault((name.partition(".")[0], width), []).append(name)
    return [
        (tuple(names), make(len(names), batch, width, dtype=torch.float32, device=device))
        for (_, width), names in kinds.items()
    ]
