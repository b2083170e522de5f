"""Runs a recurrence: what is hoisted in torch, the loop in one kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metarnn.cells import State
from metarnn.engines.modes import observed
from metarnn.engines.plan import plan
from metarnn.engines.recurrence import Recurrence
from metarnn.engines.triton.driven import driven
from metarnn.engines.triton.fused import Call, fused
from metarnn.engines.triton.halves import share
from metarnn.engines.triton.program import Key
from metarnn.graph import linear


def run(recurrence: Recurrence, fused: Any = fused) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one.

    Another `fused` may stand in for the loop: an operator of torch's.
    """
    made = plan(recurrence)
    parts, weights, x = made.parts, recurrence.weights, recurrence.x
    dtype = recurrence.state[0].dtype
    apply = linear(weights)

    found = made.given(recurrence)
    for name, mask in recurrence.masks.items():
        found["input", name] = mask.to(dtype)
    kind = x.device.type
    narrow = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    sources = dict(found)

    def hoisted() -> dict[Key, Tensor]:
        if made.drives:
            return {key: apply(node, x) for key, node in made.drives}
        known = {k: sources[key] for k, key in made.before_sources}
        values = made.before(known, apply, x)
        # What depends on no input is the same at all steps.
        whole = (v if v.dim() == 3 else v.expand(*x.shape[:2], -1) for v in values)
        return {("input", n): v.contiguous() for n, v in zip(parts.hoisted, whole, strict=True)}

    def again() -> dict[Key, Tensor]:
        with torch.autocast(kind, narrow, enabled=narrow is not None):
            return hoisted()

    whole = fused is own and bool(made.drives) and not observed()
    if not whole:
        found |= hoisted()
    given = (found[key] for key in (made.driven if whole else made.sources))
    tensors = [t.resolve_neg().contiguous() for t in (*recurrence.state, *given)]
    call = Call(x.shape[0], x.shape[1], narrow or dtype, again, share())
    results = driven(made, call, tensors) if whole else fused(made, call, tensors)

    count = len(recurrence.state)
    output = made.finished(found, results[count:], apply, x)
    if output.dtype != dtype:
        output = output.to(dtype)
    return output, tuple(results[:count])


own = fused
