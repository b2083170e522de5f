"""Fused loops under torch.compile: operators that a compiled model contains, gradients and all.

`metarnn::recurrence` is made of torch's operators (what is hoisted out of the loop, which the
compiler sees and fuses) and of `metarnn::loop`, which it does not look into: the loop of a plan, by
name, on one engine. Names are hashes of graphs, so that what torch caches on disk fits the next
process too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from metarnn.cells import Cell, State, shapes
from metarnn.engines.autograd import LoopResults
from metarnn.engines.choose import ENGINES, fused_engine
from metarnn.engines.engine import FusedEngine, Request
from metarnn.engines.plan import LoopPlan
from metarnn.engines.prologue import LoopCall, loop_outputs
from metarnn.engines.recurrence import Recurrence
from metarnn.graph import trace_cell

_cells: dict[str, Cell] = {}
_plans: dict[str, LoopPlan] = {}
MASKED = -1.0  # stands for a zoneout mask among zoneout's probabilities
NEVER = -2.0  # and this for no zoneout of a state


def _named(kind: str, content: Any) -> str:
    return f"{kind}-{hashlib.sha256(repr(content).encode()).hexdigest()[:16]}"


def register(cell: Cell) -> str:
    """The name under which torch.compile knows a cell; empty if it has no graph."""
    try:
        hash(cell)  # plans are kept by cell
        name = _named(type(cell).__name__, trace_cell(cell))
    except Exception:  # whatever a user's step does with something that is no tensor
        return ""
    _cells.setdefault(name, cell)
    return name


def engine_for(name: str, cell: str, device: str, dtype: torch.dtype) -> str:
    """The fused engine that can run a registered cell if `name` is asked for; empty if none can."""
    fits = cell and (device != "cpu" or dtype.is_floating_point or name == "triton")
    engine = fused_engine(name, Request(_cells[cell], (), device, dtype)) if fits else None
    return "" if engine is None else engine.name


# torch.compile asks once, while it traces. `torch.compiler.assume_constant_result` says the same,
# but imports the compiler at once.
engine_for._dynamo_marked_constant = True  # type: ignore[attr-defined]


def run(cell: str, engine: str, recurrence: Recurrence) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one, as one operator."""
    masks = recurrence.masks
    zoneout = [
        MASKED if isinstance(z, Tensor) else NEVER if z is None else z for z in recurrence.zoneout
    ]
    output, *final = torch.ops.metarnn.recurrence(
        cell,
        engine,
        recurrence.x,
        list(recurrence.state),
        list(recurrence.weights.values()),
        list(masks.values()),
        ",".join(masks),
        zoneout,
        list(recurrence.columns.values()),
        ",".join(recurrence.columns),
        list(recurrence.extra_inputs.values()),
        ",".join(recurrence.extra_inputs),
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
    extra_inputs: list[Tensor],
    extra_names: str,
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
        dict(zip(_split(extra_names), extra_inputs, strict=True)),
    )
    output, final = _engine(engine).run(recurrence, partial(_as_operator, engine))
    return [output, *final]


def _engine(name: str) -> FusedEngine:
    return cast(FusedEngine, ENGINES[name])


def _split(names: str) -> list[str]:
    return names.split(",") if names else []


def _as_operator(
    engine: str,
    plan: LoopPlan,
    steps: int,
    batch: int,
    dtype: torch.dtype,
    arguments: Sequence[Tensor],
) -> list[Tensor]:
    """The results of a loop, computed by the operator."""
    name = _named("plan", plan.loop)
    _plans.setdefault(name, plan)
    train = torch.is_grad_enabled() and any(t.requires_grad for t in arguments)
    flat = torch.ops.metarnn.loop(name, engine, train, steps, batch, dtype, list(arguments))
    return loop_outputs(plan, _grouped(plan, flat))


def _flat(plan: LoopPlan, results: LoopResults, train: bool) -> list[Tensor]:
    """The operator's outputs; no two of them share memory."""
    shared = plan.shared.values()
    states = [s for k, s in enumerate(results.states) if train or k in shared]
    return _unshared([*results.finals, *results.outputs, *states, *results.saved])


def _grouped(plan: LoopPlan, flat: Sequence[Any]) -> LoopResults:
    """The same by kind. Where the loop was not run for gradients, some states are not there."""
    count = len(plan.loop.states)
    own = count + sum(state is None for _, state in plan.results)
    finals, outputs, rest = list(flat[:count]), list(flat[count:own]), list(flat[own:])
    shared = set(plan.shared.values())
    if len(rest) >= count:
        return LoopResults(finals, outputs, rest[:count], rest[count:])
    states = iter(rest)
    histories = [next(states) if k in shared else finals[k] for k in range(count)]
    return LoopResults(finals, outputs, histories, [])


def _unshared(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies of those that share the memory of another one."""
    seen: set[int] = set()
    results = []
    for tensor in tensors:
        storage = tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]
        results.append(tensor.clone() if storage in seen else tensor)
        seen.add(storage)
    return results


def _call(
    plan: LoopPlan,
    engine: str,
    steps: int,
    batch: int,
    dtype: torch.dtype,
    state: Sequence[Tensor],
) -> LoopCall:
    return _engine(engine).loop_call(plan, steps, batch, dtype, state)


def _loop(
    name: str,
    engine: str,
    train: bool,
    steps: int,
    batch: int,
    dtype: torch.dtype,
    tensors: Sequence[Tensor],
    *,
    dry: bool = False,
) -> list[Tensor]:
    plan = _plans[name]
    arguments = [t if dry else t.resolve_neg().contiguous() for t in tensors]
    call = _call(plan, engine, steps, batch, dtype, arguments[: len(plan.states)])
    return _flat(plan, call.launch(arguments, train, dry), train)


def _loop_backward(
    name: str,
    engine: str,
    steps: int,
    batch: int,
    dtype: torch.dtype,
    tensors: Sequence[Tensor | None],
    saved: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    needed: Sequence[bool],
    *,
    dry: bool = False,
) -> list[Tensor]:
    plan = _plans[name]
    count = len(plan.states)
    arguments = [t if t is None or dry else t.resolve_neg().contiguous() for t in tensors]
    call = _call(plan, engine, steps, batch, dtype, cast(Any, arguments[:count]))
    results = call.loop_backward(
        arguments, saved[:count], saved[count:], gradients, needed, dry=dry
    )
    wanted = []
    for i, (gradient, tensor, need) in enumerate(zip(results, tensors, needed, strict=True)):
        if need and gradient is None:  # nothing depends on it
            if tensor is None:
                gradient = _zero_rows(plan, i - count, saved[0], steps, batch)
            else:
                gradient = torch.zeros_like(tensor)
        if need:
            wanted.append(gradient)
    return _unshared(wanted)


def _zero_rows(plan: LoopPlan, argument: int, like: Tensor, steps: int, batch: int) -> Tensor:
    node = plan.loop.nodes[plan.loop.named("input")[plan.loop_arguments[argument][1]]]
    return like.new_zeros(steps, batch, node.width)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    name, engine, _, steps, batch, dtype, tensors = inputs
    plan = _plans[name]
    results = _grouped(plan, output)
    call = _call(plan, engine, steps, batch, dtype, tensors[: len(plan.states)])
    ctx.save_for_backward(*call.kept(tensors), *results.states, *results.saved)
    ctx.call = name, engine, steps, batch, dtype
    ctx.needed = [isinstance(t, Tensor) and t.requires_grad for t in tensors]


def _backward(ctx: Any, gradients: Sequence[Tensor | None]) -> Any:
    plan, count = _plans[ctx.call[0]], len(ctx.needed)
    tensors, saved = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
    of = _grouped(plan, gradients)
    own: Any = iter(of.outputs)
    outputs = [
        next(own) if k is None else None if of.states[k] is None else of.states[k][1:]
        for _, k in plan.results
    ]
    results = torch.ops.metarnn.loop_backward(
        *ctx.call, list(tensors), list(saved), [*of.finals, *outputs], ctx.needed
    )
    each = iter(results)
    return *[None] * 6, [next(each) if need else None for need in ctx.needed]


_library = torch.library.Library("metarnn", "FRAGMENT")
_library.define(
    "recurrence(str cell, str engine, Tensor x, Tensor[] state, Tensor[] weights, Tensor[] masks, "
    "str mask_names, float[] zoneout, Tensor[] columns, str column_names, "
    "Tensor[] extra_inputs, str extra_names) -> Tensor[]"
)
_library.impl("recurrence", _recurrence, "CompositeImplicitAutograd")
_library.define(
    "loop(str plan, str engine, bool train, SymInt steps, SymInt batch, ScalarType dtype, "
    "Tensor[] tensors) -> Tensor[]"
)
_library.define(
    "loop_backward(str plan, str engine, SymInt steps, SymInt batch, ScalarType dtype, "
    "Tensor?[] tensors, Tensor[] saved, Tensor?[] gradients, bool[] needed) -> Tensor[]"
)
for _op, _function in (("loop", _loop), ("loop_backward", _loop_backward)):
    for _device in ("CPU", "CUDA"):
        _library.impl(_op, _function, _device)
    torch.library.register_fake(f"metarnn::{_op}", partial(_function, dry=True), lib=_library)
torch.library.register_autograd("metarnn::loop", _backward, setup_context=_setup, lib=_library)
