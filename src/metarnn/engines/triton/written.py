"""A loop and the one ahead that its numbers are made of, as one differentiable function.

d_t = M norm(c_t), where c is what the loop ahead puts out: for autograd an encoder, the heads of a
generator and the unit that they write for are one function then. Such a call takes the host longer
than the GPU; here x is cast once, and nothing between the two loops has a graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from metarnn.engines.anyorder import composed, further
from metarnn.engines.plan import Plan
from metarnn.engines.triton import CannotLaunch, give_up
from metarnn.engines.triton.driven import (
    back,
    changed,
    differentiated,
    drive,
    narrowed,
    parted,
    restored,
    there,
)
from metarnn.engines.triton.fused import Call, Loop, loop

EPSILON = 1e-5  # of torch's layer norm


class Written:
    """A unit's loop, and another ahead of it.

    Arguments are those of the loop ahead (states, x, its weights), the heads [n, C], then states
    and weights of the unit.

    norm    whether c is brought to mean 0 and variance 1
    places  where among the unit's `plan.driven` the numbers of each head come, in that order
    """

    def __init__(self, ahead: Loop, unit: Loop, norm: bool, places: tuple[int, ...]) -> None:
        self.ahead, self.unit = drive(ahead), drive(unit)
        self.norm, self.places = norm, places
        assert ahead.plan.output is not None
        self.c = self.ahead.states + ahead.plan.output
        self.heads = self.ahead.states + self.ahead.given  # after so many arguments they come
        self.own = self.heads + len(places)
        # What products take: those ahead (x first), heads, those of the unit but x.
        every = range(self.own + self.unit.states + self.unit.given - 1 - len(places))
        own = self.unit.read(self.inner(every, places))[1:]
        self.reads = [*self.ahead.read(every), *every[self.heads : self.own], *own]

    def inner(self, arguments: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """What the unit takes, with numbers in their places."""
        driven = [arguments[self.ahead.states], *arguments[self.own + self.unit.states :]]
        for place, number in zip(self.places, numbers, strict=True):
            driven.insert(place, number)
        return [*arguments[self.own : self.own + self.unit.states], *driven]

    def parts(self, read: Sequence[Any]) -> tuple[Sequence[Any], ...]:
        """What products ahead, heads and those of the unit take."""
        ahead, heads, own = parted(read, (len(self.ahead.reads), len(self.places)))
        return ahead, heads, [read[0], *own]

    def plain(self, call: Call, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The same in plain torch: its derivatives are autograd's."""
        before = self.ahead.plain(call, tensors[: self.heads])
        c = before[self.c]
        c = F.layer_norm(c, c.shape[-1:], eps=EPSILON) if self.norm else c
        heads = tensors[self.heads : self.own]
        numbers = [F.linear(c.to(call.dot), head.to(call.dot)) for head in heads]
        found = self.unit.plain(call, self.inner(tensors, numbers))
        return *found, *before[: self.ahead.states]


_written = lru_cache(maxsize=512)(Written)


def written(
    ahead: Plan,
    plan: Plan,
    norm: bool,
    places: tuple[int, ...],
    call: Call,
    tensors: Sequence[Tensor],
) -> Sequence[Tensor]:
    """Final states and kept outputs, then the final states of the loop ahead."""
    made = _written(loop(ahead), loop(plan), norm, places)
    if differentiated(tensors):
        return _Written.apply(made, call, *tensors)  # type: ignore[return-value]
    return _there(made, call, tensors, train=False)[0]


class _Written(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, made: Written, call: Call, *tensors: Tensor) -> Any:
        found, kept = _there(made, call, tensors, train=True)
        ctx.made, ctx.call = made, call
        ctx.sizes = len(tensors), *map(len, kept[:-1])
        ctx.save_for_backward(*tensors, *chain.from_iterable(kept))
        ctx.set_materialize_grads(False)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        made, call = ctx.made, ctx.call
        tensors, *kept = parted(ctx.saved_tensors, ctx.sizes)
        if not further(grads):
            try:
                needed = ctx.needs_input_grad[2:]
                return None, None, *_back(made, call, tensors, kept, grads, needed)
            except CannotLaunch as error:
                give_up(error)
        return None, None, *composed(lambda *t: made.plain(call, t), tensors, grads)


def _there(
    made: Written, call: Call, tensors: Sequence[Tensor], *, train: bool
) -> tuple[list[Tensor], list[Sequence[Tensor | None]]]:
    """Results, and what the way back reads beside the arguments."""
    wide = [tensors[i] for i in made.reads]
    read = narrowed(wide, call.dot)
    of_ahead, heads, of_unit = made.parts(read)
    before, kept_ahead = there(made.ahead, call, tensors[: made.heads], of_ahead, train=train)
    c = normed = before[made.c]
    mean = rstd = None
    if made.norm:
        normed, mean, rstd = torch.native_layer_norm(c, c.shape[-1:], None, None, EPSILON)
    normed = normed.to(call.dot)
    numbers = [F.linear(normed, head) for head in heads]
    found, kept = there(made.unit, call, made.inner(tensors, numbers), of_unit, train=train)
    found += before[: made.ahead.states]
    return found, [changed(read, wide), (c, normed, mean, rstd), numbers, kept_ahead, kept]


def _back(
    made: Written,
    call: Call,
    tensors: Sequence[Tensor],
    kept: Sequence[Sequence[Any]],
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """Gradients of all arguments: back through the loop, the heads and the loop ahead."""
    read, (c, normed, mean, rstd), numbers, kept_ahead, kept_own = kept
    of_ahead, heads, of_unit = made.parts(restored(read, [tensors[i] for i in made.reads]))
    asked, ahead = needed[made.heads : made.own], any(needed[: made.heads])
    inner, wanted = made.inner(tensors, numbers), made.inner(needed, [ahead or n for n in asked])
    count, place, dtype = len(grads) - made.ahead.states, made.ahead.states, c.dtype
    found: list[Tensor | None] = [None] * len(inner)
    if any(grad is not None for grad in grads[:count]):  # else only the state ahead was used
        found = back(made.unit, call, inner, of_unit, kept_own, grads[:count], wanted)
    states, driven = found[: made.unit.states], found[made.unit.states :]
    written = [driven.pop(place) for place in reversed(made.places)][::-1]
    of_x, *weights = driven

    flat = [None if adjoint is None else adjoint.flatten(0, 1) for adjoint in written]
    each, normed = list(zip(flat, heads, asked, strict=True)), normed.flatten(0, 1)
    # Rounded as autocast does, so that a first call (in plain torch between loops) is like others.
    of_heads = [
        None if d is None or not need else torch.mm(d.t(), normed).to(dtype) for d, _, need in each
    ]
    if not ahead:
        return [*(None for _ in range(made.heads)), *of_heads, *states, *weights]
    of_c = _sum((None if d is None else torch.mm(d, head) for d, head, _ in each), dtype)
    if of_c is not None:
        of_c = of_c.view(c.shape)
        if made.norm:
            of_c, _, _ = torch.ops.aten.native_layer_norm_backward(
                of_c, c, c.shape[-1:], mean, rstd, None, None, [True, False, False]
            )
    outputs: list[Tensor | None] = [None] * len(made.ahead.plan.results)
    outputs[made.c - place] = of_c
    before, need = tensors[: made.heads], needed[: made.heads]
    found = back(made.ahead, call, before, of_ahead, kept_ahead, [*grads[count:], *outputs], need)
    found[place] = _sum((of_x, found[place]), dtype)
    return [*found, *of_heads, *states, *weights]


def _sum(parts: Iterable[Tensor | None], dtype: torch.dtype) -> Tensor | None:
    """Of what there is, in a type of number."""
    found = [part.to(dtype) for part in parts if part is not None]
    return reduce(torch.add, found) if found else None
