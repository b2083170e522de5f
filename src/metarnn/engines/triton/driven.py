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

        # What products take of `plan.driven`: x, weights, then biases, which the way back leaves.
        weights = dict.fromkeys(product.weight for product in self.products)
        biases = dict.fromkeys(p.bias for p in self.products if p.bias is not None)
        self.reads, self.factors = [0, *weights, *biases], 1 + len(weights)

    def read(self, tensors: Sequence[Any]) -> list[Any]:
        """What products take, of all arguments."""
        return [tensors[self.states + i] for i in self.reads]

    def drives(self, read: Sequence[Tensor]) -> list[Tensor]:
        known, found = dict(zip(self.reads, read, strict=True)), []
        for weight, bias, columns in self.products:
            factor = known[weight] if columns is None else known[weight][:, columns]
            found.append(F.linear(read[0], factor, None if bias is None else known[bias]))
        return found

    def sorted(self, state: Sequence[Any], known: Sequence[Any]) -> list[Any]:
        """What the loop takes: states and `plan.sources`."""
        return [*state, *(known[i] for i in self.sources)]

    def plain(self, call: Call, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The same in plain torch: its derivatives are autograd's."""
        found = driven_composition(self.plan, call.steps, call.batch, tensors, call.dot)
        finals, kept = found[: self.states], found[self.states :]
        return *(final.unsqueeze(0) if call.stacked else final for final in finals), *kept


@lru_cache(maxsize=512)
def drive(loop: Loop) -> Driven:
    return Driven(loop)


def narrowed(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """These in one type of number; what is of another is cast in one launch."""
    found = list(tensors)
    places = [k for k, tensor in enumerate(found) if tensor.dtype != dtype]
    if places:
        wide = [found[k] for k in places]
        narrow = [torch.empty_like(tensor, dtype=dtype) for tensor in wide]
        torch._foreach_copy_(narrow, wide)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        for k, tensor in zip(places, narrow, strict=True):
            found[k] = tensor
    return found


def changed(new: Sequence[Tensor], old: Sequence[Tensor]) -> list[Tensor | None]:
    """What was cast: the rest is kept among the arguments."""
    return [None if one is other else one for one, other in zip(new, old, strict=True)]


def restored(new: Sequence[Tensor | None], old: Sequence[Tensor]) -> list[Tensor]:
    return [other if one is None else one for one, other in zip(new, old, strict=True)]


def differentiated(tensors: Sequence[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def driven(plan: Plan, call: Call, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Final states [B, n] (or `stacked`), then kept outputs [T, B, n], from states and
    `plan.driven`."""
    made = drive(loop(plan))
    if differentiated(tensors):
        return _Driven.apply(made, call, *tensors)  # type: ignore[return-value]
    return there(made, call, tensors, narrowed(made.read(tensors), call.dot), train=False)[0]


class _Driven(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, made: Driven, call: Call, *tensors: Tensor) -> Any:
        wide = made.read(tensors)
        read = narrowed(wide, call.dot)
        found, kept = there(made, call, tensors, read, train=True)
        ctx.made, ctx.call = made, call
        ctx.save_for_backward(*tensors, *changed(read, wide)[: made.factors], *kept)
        ctx.set_materialize_grads(False)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        made, call, count = ctx.made, ctx.call, ctx.made.states + ctx.made.given
        tensors, factors, kept = parted(ctx.saved_tensors, (count, made.factors))
        if not further(grads):
            try:
                factors = restored(factors, made.read(tensors)[: made.factors])
                needed = ctx.needs_input_grad[2:]
                return None, None, *back(made, call, tensors, factors, kept, grads, needed)
            except CannotLaunch as error:
                give_up(error)
        return None, None, *composed(lambda *t: made.plain(call, t), tensors, grads)


def there(
    made: Driven, call: Call, tensors: Sequence[Tensor], read: Sequence[Tensor], *, train: bool
) -> tuple[list[Tensor], Sequence[Tensor | None]]:
    """Results, and what the way back reads beside the arguments and what products `read`."""
    state, given, drives = tensors[: made.states], tensors[made.states :], made.drives(read)
    found = forward(made.loop, call, made.sorted(state, (*given, *drives)), train=train)
    # A drive, the largest of all, is kept only if the backward pass reads it.
    kept = (drive if read else None for drive, read in zip(drives, made.kept, strict=True))
    return results(made.plan, found), (*kept, *found.states, *found.saved)


def back(
    made: Driven,
    call: Call,
    tensors: Sequence[Tensor],
    factors: Sequence[Tensor],
    kept: Sequence[Any],
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """Gradients of states and `plan.driven`: back through the loop, then through the products."""
    count, products, totals = made.states, made.products, Totals()
    state, given = tensors[:count], tensors[count:]
    drives, states, rest = parted(kept, (len(products), count))
    need = needed[count:]
    wanted = made.sorted(needed[:count], (*need, *(True for _ in products)))
    read = made.sorted(state, (*given, *drives))
    adjoints = backward(made.loop, call, read, states, rest, grads, wanted, totals=totals)
    found: list[Tensor | None] = [None] * (made.given + len(products))
    for i, adjoint in zip(made.sources, adjoints[count:], strict=True):
        found[i] = adjoint

    def add(i: int, part: Tensor) -> None:
        before = found[i]
        found[i] = part if before is None else before + part

    known = dict(zip(made.reads, factors, strict=False))
    rows = known[0].flatten(0, 1)
    for (weight, bias, columns), adjoint in zip(products, found[made.given :], strict=True):
        if adjoint is None:
            continue
        flat = adjoint.flatten(0, 1)
        if need[0]:
            factor = known[weight] if columns is None else known[weight][:, columns]
            add(0, multiply(flat, factor, given[0].dtype).view(given[0].shape))
        if need[weight]:
            part = multiply(flat.t(), rows, given[weight].dtype)
            add(weight, part if columns is None else placed(part, given[weight], columns))
        if bias is not None and need[bias]:
            add(bias, totals(adjoint, given[bias].dtype))
    return [*adjoints[:count], *found[: made.given]]


def parted(items: Sequence[Any], sizes: Sequence[int]) -> list[Sequence[Any]]:
    """So many each, and the rest."""
    found = []
    for size in sizes:
        found.append(items[:size])
        items = items[size:]
    return [*found, items]
