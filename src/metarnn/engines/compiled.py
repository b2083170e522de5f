"""Fused loops under torch.compile: operators that a compiled model contains, gradients and all.

`metarnn::recurrence` is made of torch's operators (what is hoisted out of the loop, which the
compiler sees and fuses) and of `metarnn::loop`, which it does not look into: the loop of one plan,
by name, on one engine. Names are hashes of graphs, so that what torch caches on disk fits the next
process too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import Cell, State, shapes
from metarnn.engines import cpu, triton
from metarnn.engines.composition import Found, results
from metarnn.engines.plan import Plan
from metarnn.engines.recurrence import Recurrence
from metarnn.graph import trace_cell

_cells: dict[str, Cell] = {}
_plans: dict[str, Plan] = {}
MASKED = -1.0  # stands for a zoneout mask among zoneout's probabilities
NEVER = -2.0  # and this for no zoneout of a state


def _named(kind: str, content: Any) -> str:
    return f"{kind}-{hashlib.sha256(repr(content).encode()).hexdigest()[:16]}"


def register(cell: Cell) -> str:
    """The name of a cell, under which its loops can be compiled; empty if it has no graph."""
    try:
        hash(cell)  # plans are kept by cell
        name = _named(type(cell).__name__, trace_cell(cell))
    except Exception:  # whatever a user's step does with what is no tensor: it runs in plain torch
        return ""
    _cells.setdefault(name, cell)
    return name


def engine_for(asked: str, cell: str, device: str, dtype: torch.dtype) -> str:
    """The fused engine that can run a registered cell there; empty if none can."""
    if not cell:
        return ""
    if asked in ("auto", "cpu") and device == "cpu" and dtype.is_floating_point:
        return "" if cpu.obstacle(_cells[cell]) else "cpu"
    if asked == "triton" or (asked == "auto" and device == "cuda"):
        return "" if triton.obstacle(_cells[cell], device, dtype) else "triton"
    return ""


# torch.compile asks once, while it traces. `torch.compiler.assume_constant_result` says the same,
# but imports the compiler at once.
engine_for._dynamo_marked_constant = True  # type: ignore[attr-defined]


def run(cell: str, engine: str, recurrence: Recurrence) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one, as one operator."""
    masks = recurrence.masks
    kinds = [MASKED if isinstance(z, Tensor) else NEVER if z is None else z
             for z in recurrence.zoneout]  # fmt: skip
    output, *final = torch.ops.metarnn.recurrence(
        cell,
        engine,
        recurrence.x,
        list(recurrence.state),
        list(recurrence.weights.values()),
        list(masks.values()),
        ",".join(masks),
        kinds,
        list(recurrence.columns.values()),
        ",".join(recurrence.columns),
        list(recurrence.given.values()),
        ",".join(recurrence.given),
    )
    return output, tuple(final)


def _recurrence(
    cell: str,
    engine: str,
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    masks: list[Tensor],
    mask_names: str,
    zoneout: list[float],
    columns: list[Tensor],
    column_names: str,
    given: list[Tensor],
    given_names: str,
) -> list[Tensor]:
    unit = _cells[cell]
    masked = dict(zip(_split(mask_names), masks, strict=True))
    recurrence = Recurrence(
        unit,
        dict(zip(shapes(unit), weights, strict=True)),
        dict(zip(_split(column_names), columns, strict=True)),
        x,
        tuple(state),
        masked.get("alive"),
        masked.get("resets"),
        tuple(
            masked[f"zoneout.{k}"] if z == MASKED else None if z == NEVER else z
            for k, z in enumerate(zoneout)
        ),
        dict(zip(_split(given_names), given, strict=True)),
    )
    output, final = ENGINES[engine].run(recurrence, partial(_fused, engine))
    return [output, *final]


def _split(names: str) -> list[str]:
    return names.split(",") if names else []


def _fused(
    engine: str, plan: Plan, steps: int, batch: int, dot: torch.dtype, tensors: Sequence[Tensor]
) -> list[Tensor]:
    """What an engine's `fused` computes, by the operator."""
    name = _named("plan", plan.loop)
    _plans.setdefault(name, plan)
    train = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    flat = torch.ops.metarnn.loop(name, engine, train, steps, batch, dot, list(tensors))
    return results(plan, _grouped(plan, flat))


def _flat(plan: Plan, found: Found, train: bool) -> list[Tensor]:
    """What the operator puts out; no two of its tensors share memory."""
    shared = plan.shared.values()
    states = [s for k, s in enumerate(found.states) if train or k in shared]
    return _apart([*found.finals, *found.own, *states, *found.saved])


def _grouped(plan: Plan, flat: Sequence[Any]) -> Found:
    """The same by kind. Where the loop was not run for gradients, some states are not there."""
    count = len(plan.loop.states)
    own = count + sum(k is None for _, k in plan.results)
    finals, kept, rest = flat[:count], flat[count:own], list(flat[own:])
    shared = set(plan.shared.values())
    if len(rest) >= count:
        return Found(list(finals), list(kept), rest[:count], rest[count:])
    states = iter(rest)
    every = [next(states) if k in shared else finals[k] for k in range(count)]
    return Found(list(finals), list(kept), every, [])


def _apart(tensors: Sequence[Tensor]) -> list[Tensor]:
    seen: set[int] = set()
    found = []
    for tensor in tensors:
        storage = tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]
        found.append(tensor.clone() if storage in seen else tensor)
        seen.add(storage)
    return found


class Cpu:
    """The loop in generated C."""

    @staticmethod
    def run(recurrence: Recurrence, fused: Any) -> tuple[Tensor, State]:
        def loop(plan: Plan, steps: int, batch: int, tensors: Sequence[Tensor]) -> list[Tensor]:
            return fused(plan, steps, batch, tensors[0].dtype, tensors)

        return cpu.run(recurrence, loop)

    @staticmethod
    def forward(
        plan: Plan,
        train: bool,
        steps: int,
        batch: int,
        dot: torch.dtype,
        tensors: Sequence[Tensor],
        dry: bool,
    ) -> Found:
        from metarnn.engines.cpu.fused import forward

        return forward(plan, "train" if train else "infer", steps, batch, tensors, dry)

    @staticmethod
    def backward(
        plan: Plan,
        steps: int,
        batch: int,
        dot: torch.dtype,
        tensors: Sequence[Any],  # None for what the engine forgets
        states: Sequence[Tensor],
        saved: Sequence[Tensor],
        grads: Sequence[Tensor | None],
        needed: Sequence[bool],
        dry: bool,
    ) -> Any:
        from metarnn.engines.cpu.fused import backward

        return backward(plan, steps, batch, tensors, states, saved, grads, needed, dry)

    @staticmethod
    def forgotten(plan: Plan) -> set[int]:
        return set()


class Triton:
    """The loop as one kernel on a GPU."""

    @staticmethod
    def run(recurrence: Recurrence, fused: Any) -> tuple[Tensor, State]:
        def loop(plan: Plan, call: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
            return fused(plan, call.steps, call.batch, call.dot, tensors)

        return triton.run(recurrence, loop)

    @staticmethod
    def forward(
        plan: Plan,
        train: bool,
        steps: int,
        batch: int,
        dot: torch.dtype,
        tensors: Sequence[Tensor],
        dry: bool,
    ) -> Found:
        from metarnn.engines.triton.fused import Call, forward, loop

        return forward(loop(plan), Call(steps, batch, dot), tensors, train=train, dry=dry)

    @staticmethod
    def backward(
        plan: Plan,
        steps: int,
        batch: int,
        dot: torch.dtype,
        tensors: Sequence[Any],  # None for what the engine forgets
        states: Sequence[Tensor],
        saved: Sequence[Tensor],
        grads: Sequence[Tensor | None],
        needed: Sequence[bool],
        dry: bool,
    ) -> Any:
        from metarnn.engines.triton.fused import Call, backward, loop

        call = Call(steps, batch, dot)
        return backward(loop(plan), call, tensors, states, saved, grads, needed, dry)

    @staticmethod
    def forgotten(plan: Plan) -> set[int]:
        from metarnn.engines.triton.fused import loop

        made = loop(plan)
        return {i for i, key in enumerate(made.keys) if key in made.forgotten}


ENGINES = {"cpu": Cpu, "triton": Triton}


def _loop(
    name: str,
    engine: str,
    train: bool,
    steps: int,
    batch: int,
    dot: torch.dtype,
    tensors: Sequence[Tensor],
    *,
    dry: bool = False,
) -> list[Tensor]:
    plan = _plans[name]
    tensors = [t if dry else t.resolve_neg().contiguous() for t in tensors]
    found = ENGINES[engine].forward(plan, train, steps, batch, dot, tensors, dry)
    return _flat(plan, found, train)


def _loop_backward(
    name: str,
    engine: str,
    steps: int,
    batch: int,
    dot: torch.dtype,
    tensors: Sequence[Tensor | None],
    kept: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
    *,
    dry: bool = False,
) -> list[Tensor]:
    plan = _plans[name]
    count = len(plan.loop.states)
    given = [t if t is None or dry else t.resolve_neg().contiguous() for t in tensors]
    found = ENGINES[engine].backward(
        plan, steps, batch, dot, given, kept[:count], kept[count:], grads, needed, dry
    )
    wanted = []
    for i, (grad, tensor, need) in enumerate(zip(found, tensors, needed, strict=True)):
        if need and grad is None:  # nothing depends on it
            rows = (plan, i - count, kept[0], steps, batch)
            grad = _rows(*rows) if tensor is None else torch.zeros_like(tensor)
        if need:
            wanted.append(grad)
    return _apart(wanted)


def _rows(plan: Plan, source: int, like: Tensor, steps: int, batch: int) -> Tensor:
    node = plan.loop.nodes[plan.loop.named("input")[plan.sources[source][1]]]
    return like.new_zeros(steps, batch, node.width)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    name, engine, _, steps, batch, dot, tensors = inputs
    plan = _plans[name]
    found, forgotten = _grouped(plan, output), ENGINES[engine].forgotten(plan)
    kept = [None if i in forgotten else t for i, t in enumerate(tensors)]
    ctx.save_for_backward(*kept, *found.states, *found.saved)
    ctx.call = name, engine, steps, batch, dot
    ctx.needed = [isinstance(t, Tensor) and t.requires_grad for t in tensors]


def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> Any:
    plan = _plans[ctx.call[0]]
    count = len(ctx.needed)
    tensors, kept = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
    of = _grouped(plan, grads)
    own: Any = iter(of.own)
    outputs = [
        next(own) if k is None else None if of.states[k] is None else of.states[k][1:]
        for _, k in plan.results
    ]
    found = torch.ops.metarnn.loop_backward(
        *ctx.call, list(tensors), list(kept), [*of.finals, *outputs], ctx.needed
    )
    each = iter(found)
    return *[None] * 6, [next(each) if need else None for need in ctx.needed]


_library = torch.library.Library("metarnn", "FRAGMENT")
_library.define(
    "recurrence(str cell, str engine, Tensor x, Tensor[] state, Tensor[] weights, Tensor[] masks, "
    "str mask_names, float[] zoneout, Tensor[] columns, str column_names, "
    "Tensor[] given, str given_names) -> Tensor[]"
)
_library.impl("recurrence", _recurrence, "CompositeImplicitAutograd")
_library.define(
    "loop(str plan, str engine, bool train, SymInt steps, SymInt batch, ScalarType dot, "
    "Tensor[] tensors) -> Tensor[]"
)
_library.define(
    "loop_backward(str plan, str engine, SymInt steps, SymInt batch, ScalarType dot, "
    "Tensor?[] tensors, Tensor[] kept, Tensor?[] grads, bool[] needed) -> Tensor[]"
)
for _op, _function in (("loop", _loop), ("loop_backward", _loop_backward)):
    for _device in ("CPU", "CUDA"):
        _library.impl(_op, _function, _device)
    torch.library.register_fake(f"metarnn::{_op}", partial(_function, dry=True), lib=_library)
torch.library.register_autograd("metarnn::loop", _backward, setup_context=_setup, lib=_library)
