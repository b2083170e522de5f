"""What every fused loop has beside its kernels: itself in plain torch, and gradients of weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metarnn.engines.plan import Plan, Product
from metarnn.graph import Schedule, linear


def gradient_of_map(
    plan: Plan,
    kind: str,
    name: str,
    tensor: Tensor,
    outputs: dict[str, Tensor],
    states: Sequence[Tensor],
    steps: int,
) -> Tensor | None:
    """The gradient of a map's weight or bias: one product over all steps for each use of it."""
    total = None
    for i, product in enumerate(plan.products):
        if product.map != name or f"dproduct.{i}" not in outputs:
            continue
        if kind == "bias" and not product.bias:
            continue
        adjoint = outputs[f"dproduct.{i}"].flatten(0, 1)
        part = (
            adjoint.sum(0)
            if kind == "bias"
            else _weight(product, i, adjoint, outputs, states, steps)
        )
        if part.shape != tensor.shape:
            whole = torch.zeros_like(tensor)
            whole[:, product.columns] = part
            part = whole
        total = part if total is None else total + part
    return total


def _weight(
    product: Product,
    number: int,
    adjoint: Tensor,
    outputs: dict[str, Tensor],
    states: Sequence[Tensor],
    steps: int,
) -> Tensor:
    if product.state is None:
        argument = outputs[f"argument.{number}"]
    else:
        argument = states[product.state][:steps]
    # States may be kept in wider numbers than products are computed in.
    return adjoint.T @ argument.flatten(0, 1).to(adjoint.dtype)


def composition(
    plan: Plan, steps: int, batch: int, tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """What the fused function computes, in plain torch: its derivatives are autograd's."""
    loop, count = plan.loop, len(plan.loop.states)
    sources = dict(zip(plan.sources, tensors[count:], strict=True))
    apply = linear({f"{k}_{n}": t for (k, n), t in sources.items() if k in ("weight", "bias")})
    step = Schedule(loop, loop.results)
    fixed, streams, places = {}, {}, {}
    for k in step.sources:
        node = loop.nodes[k]
        if node.op == "state":
            places[k] = node["index"]
        elif node.op == "input":
            streams[k] = sources["input", node["name"]].unbind(0)
        else:
            fixed[k] = sources[node.op, node["name"]]
    state, rows = tuple(tensors[:count]), []
    for t in range(steps):
        values = {k: stream[t] for k, stream in streams.items()}
        values |= {k: state[index] for k, index in places.items()}
        found = [f.expand(batch, -1) for f in step({**fixed, **values}, apply, tensors[0])]
        state = tuple(found[:count])
        rows.append(found[count:])
    return (*state, *(torch.stack(part) for part in zip(*rows, strict=True)))
