"""What every fused loop has beside its kernels: itself in plain torch, and gradients of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metarnn.engines.plan import Plan, Product, X
from metarnn.graph import Schedule, linear

History = Callable[[int, torch.dtype], Tensor]  # of a state [T · B, n], in a type


@dataclass(frozen=True)
class Found:
    """What a fused loop has found."""

    finals: list[Tensor]  # [B, n] each
    own: list[Tensor]  # kept outputs [T, B, n] that lie in no array of states
    states: list[Tensor]  # their histories, [T + 1, B, n] where all steps are kept
    saved: list[Tensor]  # what the backward pass reads, [T, B, n]


def results(plan: Plan, found: Found) -> list[Tensor]:
    """Final states, then kept outputs, all of one type."""
    own, dtype = iter(found.own), found.finals[0].dtype
    kept = (next(own) if k is None else found.states[k][1:] for _, k in plan.results)
    return [*found.finals, *(each if each.dtype == dtype else each.to(dtype) for each in kept)]


class Totals:
    """Sums over time and sequences: biases of one sum have the same gradient, each its own copy."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}

    def __call__(self, adjoint: Tensor, dtype: torch.dtype) -> Tensor:
        key = id(adjoint), dtype
        if key in self._known:
            return self._known[key][1].clone()
        total = adjoint.sum(tuple(range(adjoint.dim() - 1)), dtype=dtype)
        self._known[key] = adjoint, total  # the adjoint, so that no other has its id
        return total


def multiply(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a b, for a gradient of that type: on a GPU, sums are not rounded to a narrower one first."""
    if dtype == torch.float32 and a.dtype.itemsize == 2 and a.is_cuda:
        return torch.mm(a, b, out_dtype=dtype)
    return torch.mm(a, b)


def placed(part: Tensor, like: Tensor, columns: slice) -> Tensor:
    """Some columns of a matrix whose others are 0."""
    if part.shape == like.shape:
        return part
    whole = torch.zeros_like(like)
    whole[:, columns] = part
    return whole


def gradients(
    plan: Plan,
    steps: int,
    tensors: Sequence[Tensor],
    states: Sequence[Tensor],
    outputs: Mapping[str, Tensor],
    adjoints: Sequence[Tensor],
    needed: Sequence[bool],
    totals: Totals | None = None,
) -> list[Tensor | None]:
    """The gradients of a fused loop's tensors, from what its reverse loop has found."""
    count = len(adjoints)
    found: list[Tensor | None] = list(adjoints)
    totals = Totals() if totals is None else totals

    histories: dict[tuple[int, torch.dtype], Tensor] = {}

    def history(state: int, dtype: torch.dtype) -> Tensor:
        """The states that steps began with: they may be kept wider than products are computed."""
        key = state, dtype
        if key not in histories:
            histories[key] = states[state][:steps].to(dtype).flatten(0, 1)
        return histories[key]

    keys = zip(plan.sources, tensors[count:], needed[count:], strict=True)
    for key, tensor, need in keys:
        kind, name = key
        if not need:
            found.append(None)
        elif key in plan.uses:
            uses = plan.uses[key]
            found.append(gradient_of_map(uses, kind, tensor, outputs, history, totals))
        else:
            grad = outputs.get(f"d{kind}.{name}")
            if grad is not None and kind == "vector" and grad.dim() > 1:
                grad = totals(grad, tensor.dtype)
            elif grad is not None and kind == "context" and grad.dim() > 2:
                grad = grad.sum(0)
            found.append(grad)
    return found


def gradient_of_map(
    uses: Sequence[Product],
    kind: str,
    tensor: Tensor,
    outputs: Mapping[str, Tensor],
    history: History,
    totals: Totals,
) -> Tensor | None:
    """The gradient of a map's weight or bias: one product over all steps for each use of it."""
    found = None
    for product in uses:
        adjoint = outputs.get(product.adjoint)
        if adjoint is None:
            continue
        if kind == "bias":
            part = totals(adjoint, tensor.dtype)
        else:
            dtype, state = adjoint.dtype, product.state
            if state is None:
                argument = outputs[product.argument].to(dtype).flatten(0, 1)
            else:
                argument = history(state, dtype)
            part = multiply(adjoint.flatten(0, 1).t(), argument, tensor.dtype)
            part = placed(part, tensor, product.columns)
        found = part if found is None else found + part
    return found


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


def driven_composition(
    plan: Plan, steps: int, batch: int, tensors: Sequence[Tensor], dot: torch.dtype | None = None
) -> tuple[Tensor, ...]:
    """The same from states and `plan.driven`, with the products of x before it, computed in a type
    of number."""
    count = len(plan.loop.states)
    found = dict(zip(plan.driven, tensors[count:], strict=True))
    maps = {f"{k}_{n}": t for (k, n), t in found.items() if k in ("weight", "bias")}
    x = found[X]
    if dot is not None:
        x, maps = x.to(dot), {name: t.to(dot) for name, t in maps.items()}
    apply = linear(maps)
    found |= {key: apply(node, x) for key, node in plan.drives}
    sources = [found[key] for key in plan.sources]
    return composition(plan, steps, batch, [*tensors[:count], *sources])
