"""Runs a recurrence: what is hoisted in torch, the loop in one call of generated C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from metarnn.cells import State
from metarnn.engines.cpu.driven import driven, places
from metarnn.engines.cpu.fused import fused
from metarnn.engines.plan import Key, Plan, plan
from metarnn.engines.recurrence import Recurrence
from metarnn.graph import Linear, linear

WIDE = {torch.float64: torch.float64}  # what is computed in; for any other type float32


def run(recurrence: Recurrence, fused: Any = fused) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one.

    Another `fused` may stand in for the loop: an operator of torch's.
    """
    made = plan(recurrence)
    weights, x = recurrence.weights, recurrence.x
    narrow = recurrence.state[0].dtype
    wide = WIDE.get(narrow, torch.float32)
    apply = linear(weights)

    found = made.given(recurrence)
    if made.drives and fused is own and x.dtype == wide and not torch.is_autocast_enabled("cpu"):
        results = _driven(made, recurrence, found)
    else:
        _hoist(made, recurrence, found, apply)
        tensors = [*recurrence.state, *(found[key] for key in made.sources)]
        results = fused(made, x.shape[0], x.shape[1], [_ready(t, wide) for t in tensors])

    count = len(recurrence.state)
    output = made.finished(found, results[count:], apply, x)
    if narrow != wide:
        return output.to(narrow), tuple(part.to(narrow) for part in results[:count])
    return output, tuple(results[:count])


own = fused


def _driven(plan: Plan, recurrence: Recurrence, found: dict[Key, Tensor]) -> Sequence[Tensor]:
    """Where all that is hoisted are products of x, they and the loop are one function."""
    weights, x, biases = recurrence.weights, recurrence.x, []
    tensors = [x if x.is_contiguous() else x.contiguous()]
    for _, node in plan.drives:
        weight = weights[f"weight_{node['map']}"]
        if (node["start"], node["stop"]) != (0, weight.shape[1]):
            weight = weight[:, node["start"] : node["stop"]]
        fits = weight.dtype == x.dtype and weight.stride(1) == 1
        tensors.append(weight if fits else weight.to(x.dtype).contiguous())
        if node["bias"]:
            biases.append(_ready(weights[f"bias_{node['map']}"], x.dtype))
    rest = [*recurrence.state, *(found.get(key) for key in plan.sources)]
    at = places(plan)
    tensors += biases
    tensors += [_ready(cast(Tensor, rest[place]), x.dtype) for place in at.rest]
    return driven(plan, tensors)


def _hoist(plan: Plan, recurrence: Recurrence, found: dict[Key, Tensor], apply: Linear) -> None:
    """Add what is computed before the loop, in plain torch, to what is found."""
    x = recurrence.x
    if plan.drives:
        for key, node in plan.drives:
            found[key] = apply(node, x)
    elif plan.parts.hoisted:
        known = {k: found[key] for k, key in plan.before_sources}
        for name, value in zip(plan.parts.hoisted, plan.before(known, apply, x), strict=True):
            # What depends on no input is the same at all steps.
            found["input", name] = value if value.dim() == 3 else value.expand(*x.shape[:2], -1)


def _ready(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if tensor.dtype == dtype and tensor.is_contiguous():
        return tensor
    return tensor.to(dtype).contiguous()
