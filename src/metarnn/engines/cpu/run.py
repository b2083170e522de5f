"""Runs a recurrence: what is hoisted in torch, the loop in one call of generated C."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metarnn.cells import State
from metarnn.engines.cpu.driven import driven
from metarnn.engines.cpu.fused import fused
from metarnn.engines.cpu.kernels import drivable
from metarnn.engines.cpu.memory import plain
from metarnn.engines.cpu.passes import Size
from metarnn.engines.modes import watched
from metarnn.engines.plan import Key, Plan, plan
from metarnn.engines.recurrence import Recurrence
from metarnn.graph import Linear, linear

WIDE = {torch.float64: torch.float64}  # what is computed in; for any other type float32


def run(recurrence: Recurrence, fused: Any = fused) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one.

    Another `fused` may stand in for the loop: an operator of torch's.
    """
    # A norm of rows that lie in the cache costs less than a pass of its own over memory.
    made = plan(recurrence, products_only=True)
    weights, x = recurrence.weights, recurrence.x
    narrow = recurrence.state[0].dtype
    wide = WIDE.get(narrow, torch.float32)
    apply = linear(weights)

    found = made.given(recurrence)
    whole = fused is own and x.dtype == wide and drivable(made) and not watched("cpu")
    if not whole:
        _hoist(made, found, apply, x)
    tensors = [*recurrence.state, *(found[key] for key in (made.driven if whole else made.sources))]
    ready = [plain(t if t.dtype == wide else t.to(wide)) for t in tensors]
    steps, batch, count = x.shape[0], x.shape[1], len(recurrence.state)
    if whole:
        results = driven(Size(made, steps, batch, wide))(ready)
        final = [part[0] for part in results[:count]]
    else:
        results = fused(made, steps, batch, ready)
        final = results[:count]
    output = made.finished(found, results[count:], apply, x)
    if narrow != wide:
        return output.to(narrow), tuple(part.to(narrow) for part in final)
    return output, tuple(final)


own = fused


def _hoist(plan: Plan, found: dict[Key, Tensor], apply: Linear, x: Tensor) -> None:
    """Add what is computed before the loop, in plain torch, to what is found."""
    if plan.drives:
        for key, node in plan.drives:
            found[key] = apply(node, x)
    elif plan.parts.hoisted:
        known = {k: found[key] for k, key in plan.before_sources}
        for name, value in zip(plan.parts.hoisted, plan.before(known, apply, x), strict=True):
            # What depends on no input is the same at all steps.
            found["input", name] = value if value.dim() == 3 else value.expand(*x.shape[:2], -1)
