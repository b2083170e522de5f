"""Runs a recurrence: what is hoisted in torch, the loop in one call of generated C."""

from __future__ import annotations

import torch
from torch import Tensor

from metarnn.cells import State
from metarnn.engines.cpu.fused import fused
from metarnn.engines.cpu.plan import plan
from metarnn.engines.recurrence import Recurrence
from metarnn.graph import linear


def run(recurrence: Recurrence) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one."""
    made = plan(recurrence)
    parts, weights, x = made.parts, recurrence.weights, recurrence.x
    narrow = recurrence.state[0].dtype
    wide = torch.promote_types(narrow, torch.float32)
    nodes, apply = parts.whole.nodes, linear(weights)

    found: dict[tuple[str, str], Tensor] = {("input", "x"): x}
    for name, mask in recurrence.masks.items():
        found["input", name] = mask
    for name, columns in recurrence.columns.items():
        found["context", f"columns.{name}"] = columns

    def fetch(kind: str, name: str) -> Tensor:
        return weights[name] if kind == "vector" else found[kind, name]

    known = {k: fetch(nodes[k].op, nodes[k]["name"]) for k in made.before.sources}
    for name, value in zip(parts.hoisted, made.before(known, apply, x), strict=True):
        found["input", name] = value

    tensors = []
    for kind, name in made.sources:
        shared = weights.get(f"{kind}_{name}") if kind in ("weight", "bias") else None
        tensors.append(_ready(fetch(kind, name) if shared is None else shared, wide))
    state = [_ready(part, wide) for part in recurrence.state]
    results = fused(made, x.shape[0], x.shape[1], [*state, *tensors])

    kept = dict(zip(parts.kept.values(), results[len(state) :], strict=True))
    output = parts.whole.outputs["y"]
    if output not in kept:
        known = {k: fetch(nodes[k].op, nodes[k]["name"]) for k in made.after.sources}
        (kept[output],) = made.after({**known, **kept}, apply, x)
    final = results[: len(state)]
    if narrow != wide:
        return kept[output].to(narrow), tuple(part.to(narrow) for part in final)
    return kept[output], tuple(final)


def _ready(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    tensor = tensor if tensor.dtype == dtype else tensor.to(dtype)
    return tensor if tensor.is_contiguous() else tensor.contiguous()
