"""Runs a recurrence: what is hoisted in torch, the loop in one kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metarnn.cells import State
from metarnn.engines.plan import plan
from metarnn.engines.recurrence import Recurrence
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
    known = {k: found[key] for k, key in made.before_sources}
    narrow, kind = torch.is_autocast_enabled(x.device.type), x.device.type

    def hoisted() -> dict[Key, Tensor]:
        with torch.autocast(kind, torch.get_autocast_dtype(kind), enabled=narrow):
            values = made.before(known, apply, x)
        # What depends on no input is the same at all steps.
        whole = (v if v.dim() == 3 else v.expand(*x.shape[:2], -1) for v in values)
        return {("input", n): v.contiguous() for n, v in zip(parts.hoisted, whole, strict=True)}

    found |= hoisted()
    tensors = [
        t if t.is_contiguous() else t.contiguous()
        for t in (*recurrence.state, *(found[key] for key in made.sources))
    ]
    call = Call(x.shape[0], x.shape[1], _dot(dtype, x.device), hoisted, share())
    results = fused(made, call, tensors)

    count = len(recurrence.state)
    output = made.finished(found, results[count:], apply, x)
    if output.dtype != dtype:
        output = output.to(dtype)
    return output, tuple(results[:count])


def _dot(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The type of number that products multiply: under autocast a narrower one."""
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return dtype
