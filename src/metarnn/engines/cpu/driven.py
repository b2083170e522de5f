"""The loop together with the products of x that drive it, as one differentiable function.

So it is for most cells: an LSTM's loop reads W x + b, nothing else comes before it. One function
instead of several costs autograd less, which counts where a call is short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from metarnn.engines.anyorder import composed
from metarnn.engines.composition import composition, results
from metarnn.engines.cpu.dense import Dense
from metarnn.engines.cpu.fused import forward, pull
from metarnn.engines.cpu.kernels import loop
from metarnn.engines.cpu.memory import empty
from metarnn.engines.plan import Plan


class Places:
    """Where the tensors of a call are among those of the loop, which are states and sources.

    A call has x, the weights of the drives, the biases of those that have one, and the rest of the
    loop's tensors in their order.
    """

    def __init__(self, plan: Plan) -> None:
        count, sources = len(plan.loop.states), plan.sources
        drives = [count + sources.index(key) for key, _ in plan.drives]
        biased = [bool(node["bias"]) for _, node in plan.drives]
        self.x = count + sources.index(("input", "x")) if ("input", "x") in sources else None
        own = {*drives, self.x}
        self.rest = [k for k in range(count + len(sources)) if k not in own]
        self.total = count + len(sources)
        # Of each drive its place, and those of its weight and its bias in the call.
        self.drives, bias = [], len(drives) + 1
        for k, (place, has_bias) in enumerate(zip(drives, biased, strict=True)):
            self.drives.append((place, 1 + k, bias if has_bias else None))
            bias += has_bias
        self.first = bias  # of the rest, in the call

    def whole(self, tensors: Sequence[Tensor], product: Callable[..., Tensor]) -> list[Any]:
        """The loop's tensors, from those of a call."""
        found: list[Any] = [None] * self.total
        for place, w, b in self.drives:
            found[place] = product(tensors[0], tensors[w], None if b is None else tensors[b])
        if self.x is not None:
            found[self.x] = tensors[0]
        for place, tensor in zip(self.rest, tensors[self.first :], strict=True):
            found[place] = tensor
        return found


places = lru_cache(maxsize=512)(Places)


def driven(plan: Plan, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Final states [B, n], then kept outputs [T, B, n], from the tensors of a call; see `Places`.

    All are of one type and contiguous, but for the weights, whose rows may lie apart.
    """
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return _Driven.apply(plan, *tensors)  # type: ignore[return-value]
    steps, batch, _ = tensors[0].shape
    return results(plan, forward(plan, "infer", steps, batch, _driven(plan, tensors)))


def _driven(plan: Plan, tensors: Sequence[Tensor]) -> list[Tensor]:
    dense = Dense(tensors[0].dtype)
    found = places(plan).whole(tensors, dense.linear)
    dense.run()
    return found


class _Driven(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, *tensors: Tensor) -> Any:
        loop(plan, "back", tensors[0].dtype)  # if it cannot be compiled, better now than later
        steps, batch, _ = tensors[0].shape
        whole = _driven(plan, tensors)
        found = forward(plan, "train", steps, batch, whole)
        drives = [whole[place] for place, _, _ in places(plan).drives]
        ctx.save_for_backward(*tensors, *drives, *found.states, *found.saved)
        ctx.plan = plan
        ctx.set_materialize_grads(False)
        return tuple(results(plan, found))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        plan, needed = ctx.plan, ctx.needs_input_grad[1:]
        at, saved = places(plan), ctx.saved_tensors
        tensors, saved = saved[: len(needed)], saved[len(needed) :]
        steps, batch, _ = tensors[0].shape
        if torch.is_grad_enabled():

            def plain(*tensors: Tensor) -> tuple[Tensor, ...]:
                return composition(plan, steps, batch, at.whole(tensors, linear))

            return None, *composed(plain, tensors, grads)

        count, drives = len(plan.loop.states), len(at.drives)
        each = iter(saved)
        whole = at.whole(tensors, lambda *_: next(each))
        states, products = saved[drives : drives + count], saved[drives + count :]
        asked = [True] * at.total
        for place, need in zip(at.rest, needed[at.first :], strict=True):
            asked[place] = need
        dense = Dense(tensors[0].dtype)
        pulled = pull(plan, steps, batch, dense, whole, states, products, grads, asked)
        outside = _outside(at, dense, tensors, pulled, needed)
        dense.run()
        return None, *outside, *(pulled[place] for place in at.rest)


def _outside(
    at: Places,
    dense: Dense,
    tensors: Sequence[Tensor],
    pulled: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of x and of the drives' weights, from the adjoints of the loop's tensors."""
    found: list[Tensor | None] = [None] * at.first
    x, dx = tensors[0], None if at.x is None else pulled[at.x]
    if dx is not None and sum(dx is other for other in pulled) > 1:
        dx = dx.clone()  # it stands for something else, too
    for place, w, b in at.drives:
        adjoint, weight = pulled[place], tensors[w]
        assert adjoint is not None  # the loop puts out the adjoints of all its inputs
        if needed[0]:
            add, dx = dx is not None, empty(*x.shape, dtype=x.dtype) if dx is None else dx
            dense.pull(adjoint, weight, dx, add)
        if needed[w]:
            found[w] = torch.empty(weight.shape, dtype=weight.dtype)
            dense.outer(adjoint, x, found[w])
        if b is not None and needed[b]:
            found[b] = torch.empty_like(tensors[b])
            dense.total(adjoint, found[b])
    found[0] = dx if needed[0] else None
    return found
