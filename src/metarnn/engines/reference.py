"""The loop over time in plain torch: what every other engine must agree with.

It runs any cell, and all that autograd, vmap and torch.func can do works on it. `run_loop` is the
same loop from a plan's graph: it defines what a fused kernel computes, and derivatives of higher
order are taken of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metarnn.cells import State
from metarnn.engines.plan import LoopPlan, X
from metarnn.engines.recurrence import Recurrence
from metarnn.graph import Schedule, linear


def run(recurrence: Recurrence) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one, [B, n] each."""
    # unbind, not x[t]: the gradient of T slices is one stack, that of T selects T full tensors.
    inputs = {name: value.unbind(0) for name, value in recurrence.inputs.items()}
    state, states = recurrence.state, []
    for t in range(recurrence.x.shape[0]):
        state = recurrence.step({name: value[t] for name, value in inputs.items()}, state)
        states.append(state)
    history = tuple(torch.stack(part) for part in zip(*states, strict=True))
    return recurrence.cell.output(recurrence.theta, recurrence.drive, history), state


def run_loop(
    plan: LoopPlan, steps: int, batch: int, tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """A plan's loop.

    Args:
        plan: The cell's plan.
        steps: T.
        batch: B.
        tensors: The initial states [B, n], then `plan.loop_arguments`.

    Returns:
        The final states [1, B, n], then `plan.results` [T, B, n].
    """
    loop, count = plan.loop, len(plan.loop.states)
    arguments = dict(zip(plan.loop_arguments, tensors[count:], strict=True))
    apply = linear({f"{k}_{n}": t for (k, n), t in arguments.items() if k in ("weight", "bias")})
    step = Schedule(loop, loop.results)
    fixed, streams, places = {}, {}, {}
    for k in step.sources:
        node = loop.nodes[k]
        if node.op == "state":
            places[k] = node["index"]
        elif node.op == "input":
            streams[k] = arguments["input", node["name"]].unbind(0)
        else:
            fixed[k] = arguments[node.op, node["name"]]
    state, rows = tuple(tensors[:count]), []
    for t in range(steps):
        values = {k: stream[t] for k, stream in streams.items()}
        values |= {k: state[index] for k, index in places.items()}
        results = [
            value.expand(batch, -1) for value in step({**fixed, **values}, apply, tensors[0])
        ]
        state = tuple(results[:count])
        rows.append(results[count:])
    final = (part.unsqueeze(0) for part in state)
    return (*final, *(torch.stack(part) for part in zip(*rows, strict=True)))


def run_projected_loop(
    plan: LoopPlan,
    steps: int,
    batch: int,
    tensors: Sequence[Tensor],
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, ...]:
    """The same from states and `plan.projection_arguments`: with the products of x before the loop.

    The products are computed in `dtype`, if one is given.
    """
    count = len(plan.loop.states)
    arguments = dict(zip(plan.projection_arguments, tensors[count:], strict=True))
    maps = {f"{k}_{n}": t for (k, n), t in arguments.items() if k in ("weight", "bias")}
    x = arguments[X]
    if dtype is not None:
        x, maps = x.to(dtype), {name: weight.to(dtype) for name, weight in maps.items()}
    arguments |= plan.hoisted(arguments, linear(maps), x)
    return run_loop(
        plan, steps, batch, [*tensors[:count], *(arguments[key] for key in plan.loop_arguments)]
    )
