"""The loop together with the products of x that drive it, as one differentiable function.

So it is for most cells: an LSTM's loop reads W x + b, nothing else comes before it. For autograd a
call is one function then, and biases that have the same gradient share its computation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from metarnn.engines.anyorder import composed, further
from metarnn.engines.composition import Totals, driven_composition, multiply, placed, results
from metarnn.engines.plan import Plan
from metarnn.engines.triton import CannotLaunch, give_up
from metarnn.engines.triton.fused import Call, Loop, backward, forward, loop


class Product(NamedTuple):
    """x times a weight: which of `plan.driven` it and its bias are, and which columns of it."""

    weight: int
    bias: int | None
    columns: slice | None  # None for all


class Driven:
    """A plan's loop with the products of x. Their results come after `plan.driven`, of which x is
    the first."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.plan = loop, loop.plan
        plan = loop.plan
        self.states, self.given = len(plan.states), len(plan.driven)
        place = {key: i for i, key in enumerate([*plan.driven, *(key for key, _ in plan.drives)])}
        self.sources = [place[key] for key in plan.sources]
        self.kept = [key not in self.loop.forgotten for key, _ in plan.drives]
        shapes = {key: shape for key, _, shape in plan.named_weights}
        self.products = []
        for _, node in plan.drives:
            weight, bias = ("weight", node["map"]), ("bias", node["map"])
            columns = slice(node["start"], node["stop"])
            whole = (columns.start, columns.stop) == (0, shapes[weight][1])
            self.products.append(
                Product(place[weight], place[bias] if node["bias"] else None,
                        None if whole else columns)
            )  # fmt: skip

    def factors(self, tensors: Sequence[Tensor], dot: torch.dtype) -> list[Tensor]:
        """x and the weights it is multiplied with, as products take them."""
        found = [tensors[0]]
        for weight, _, columns in self.products:
            found.append(tensors[weight] if columns is None else tensors[weight][:, columns])
        return [factor if factor.dtype == dot else factor.to(dot) for factor in found]

    def cast(self, tensors: Sequence[Tensor], dot: torch.dtype) -> bool:
        """Whether any of these is of another type."""
        read = (tensors[0], *(tensors[product.weight] for product in self.products))
        return any(tensor.dtype != dot for tensor in read)

    def drives(self, tensors: Sequence[Tensor], factors: Sequence[Tensor]) -> list[Tensor]:
        x, *weights = factors
        found = []
        for (_, i, _), weight in zip(self.products, weights, strict=True):
            bias = None if i is None else tensors[i]
            bias = bias if bias is None or bias.dtype == x.dtype else bias.to(x.dtype)
            found.append(F.linear(x, weight, bias))
        return found

    def sorted(self, state: Sequence[Any], known: Sequence[Any]) -> list[Any]:
        """What the loop takes: states and `plan.sources`."""
        return [*state, *(known[i] for i in self.sources)]


_driven = lru_cache(maxsize=512)(Driven)


def driven(plan: Plan, call: Call, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Final states [B, n] (or `stacked`), then kept outputs [T, B, n], from states and
    `plan.driven`."""
    made = _driven(loop(plan))
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return _Driven.apply(made, call, *tensors)  # type: ignore[return-value]
    state, given = tensors[: made.states], tensors[made.states :]
    drives = made.drives(given, made.factors(given, call.dot))
    tensors = made.sorted(state, (*given, *drives))
    return results(plan, forward(made.loop, call, tensors, train=False))


class _Driven(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, made: Driven, call: Call, *tensors: Tensor) -> Any:
        state, given = tensors[: made.states], tensors[made.states :]
        factors = made.factors(given, call.dot)
        drives = made.drives(given, factors)
        found = forward(made.loop, call, made.sorted(state, (*given, *drives)), train=True)
        # A drive, the largest of all, is kept only if the backward pass reads it.
        kept = (drive if read else None for drive, read in zip(drives, made.kept, strict=True))
        # Nor are factors kept that were not cast.
        ctx.made, ctx.call, ctx.cast = made, call, made.cast(given, call.dot)
        factors = factors if ctx.cast else []
        ctx.save_for_backward(*tensors, *kept, *found.states, *found.saved, *factors)
        ctx.set_materialize_grads(False)
        return tuple(results(made.plan, found))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        made, call, saved = ctx.made, ctx.call, ctx.saved_tensors
        if not further(grads):
            try:
                cut = len(saved) - (1 + len(made.products) if ctx.cast else 0)
                needed, factors = ctx.needs_input_grad[2:], saved[cut:]
                return None, None, *_gradients(made, call, saved[:cut], factors, grads, needed)
            except CannotLaunch as error:
                give_up(error)

        def plain(*tensors: Tensor) -> tuple[Tensor, ...]:
            found = driven_composition(made.plan, call.steps, call.batch, tensors, call.dot)
            finals, kept = found[: made.states], found[made.states :]
            return *(final.unsqueeze(0) if call.stacked else final for final in finals), *kept

        return None, None, *composed(plain, saved[: made.states + made.given], grads)


def _gradients(
    made: Driven,
    call: Call,
    saved: Sequence[Any],
    factors: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """Of states and `plan.driven`: back through the loop, then through the products."""
    count, products, totals = made.states, made.products, Totals()
    state, given, drives, states, rest = _parted(saved, (count, made.given, len(products), count))
    x, *weights = factors or made.factors(given, call.dot)
    need = needed[count:]
    wanted = made.sorted(needed[:count], (*need, *(True for _ in products)))
    tensors = made.sorted(state, (*given, *drives))
    adjoints = backward(made.loop, call, tensors, states, rest, grads, wanted, totals=totals)
    found: list[Tensor | None] = [None] * (made.given + len(products))
    for i, adjoint in zip(made.sources, adjoints[count:], strict=True):
        found[i] = adjoint

    def add(i: int, part: Tensor) -> None:
        before = found[i]
        found[i] = part if before is None else before + part

    rows = x.flatten(0, 1)
    each = zip(products, weights, found[made.given :], strict=True)
    for (weight, bias, columns), factor, adjoint in each:
        if adjoint is None:
            continue
        flat = adjoint.flatten(0, 1)
        if need[0]:
            add(0, multiply(flat, factor, given[0].dtype).view(x.shape))
        if need[weight]:
            part = multiply(flat.t(), rows, given[weight].dtype)
            add(weight, part if columns is None else placed(part, given[weight], columns))
        if bias is not None and need[bias]:
            add(bias, totals(adjoint, given[bias].dtype))
    return [*adjoints[:count], *found[: made.given]]


def _parted(items: Sequence[Any], sizes: Sequence[int]) -> list[Sequence[Any]]:
    """So many each, and the rest."""
    found = []
    for size in sizes:
        found.append(items[:size])
        items = items[size:]
    return [*found, items]
