"""Runs a recurrence: what is hoisted in torch, the loop in one call of generated C."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metarnn.cells import State
from metarnn.engines.cpu.fused import fused
from metarnn.engines.plan import plan
from metarnn.engines.recurrence import Recurrence
from metarnn.graph import linear

WIDE = {torch.float64: torch.float64}  # what is computed in; for any other type float32


def run(recurrence: Recurrence, fused: Any = fused) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one.

    Another `fused` may stand in for the loop: an operator of torch's.
    """
    made = plan(recurrence)
    parts, weights, x = made.parts, recurrence.weights, recurrence.x
    narrow = recurrence.state[0].dtype
    wide = WIDE.get(narrow, torch.float32)
    apply = linear(weights)

    found = made.given(recurrence)
    if made.drives:
        for key, node in made.drives:
            found[key] = apply(node, x)
    elif parts.hoisted:
        known = {k: found[key] for k, key in made.before_sources}
        for name, value in zip(parts.hoisted, made.before(known, apply, x), strict=True):
            # What depends on no input is the same at all steps.
            found["input", name] = value if value.dim() == 3 else value.expand(*x.shape[:2], -1)

    tensors = [*recurrence.state, *(found[key] for key in made.sources)]
    ready = [
        t if t.dtype == wide and t.is_contiguous() else t.to(wide).contiguous() for t in tensors
    ]
    results = fused(made, x.shape[0], x.shape[1], ready)

    count = len(recurrence.state)
    output = made.finished(found, results[count:], apply, x)
    if narrow != wide:
        return output.to(narrow), tuple(part.to(narrow) for part in results[:count])
    return output, tuple(results[:count])
