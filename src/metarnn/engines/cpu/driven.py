"""The loop together with the products of x that drive it, as one differentiable function.

So it is for most cells: an LSTM's loop reads W x + b, nothing else comes before it. Each of its
passes is one call of generated C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.anyorder import composed
from metarnn.engines.composition import composition, results
from metarnn.engines.cpu.fused import forward, reverse
from metarnn.engines.cpu.kernels import loop
from metarnn.engines.cpu.memory import empty
from metarnn.engines.plan import Plan
from metarnn.graph import linear

NOTHING = torch.empty(0)  # its address is 0


def driven(plan: Plan, steps: int, batch: int, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Final states [B, n], then kept outputs [T, B, n], from states and `plan.driven`."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return _Driven.apply(plan, steps, batch, *tensors)  # type: ignore[return-value]
    whole = [*tensors, *_drives(plan, steps, batch, tensors[0].dtype)]
    return results(plan, forward(plan, "infer", steps, batch, whole, driven=True))


def _drives(plan: Plan, steps: int, batch: int, dtype: torch.dtype) -> list[Tensor]:
    return [empty(steps, batch, node.width, dtype=dtype) for _, node in plan.drives]


class _Driven(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, steps: int, batch: int, *tensors: Tensor) -> Any:
        dtype = tensors[0].dtype
        loop(plan, "back", dtype, True)  # if it cannot be compiled, better now than later
        whole = [*tensors, *_drives(plan, steps, batch, dtype)]
        found = forward(plan, "train", steps, batch, whole, driven=True)
        ctx.save_for_backward(*whole, *found.states, *found.saved)
        ctx.plan, ctx.steps, ctx.batch = plan, steps, batch
        ctx.set_materialize_grads(False)
        return tuple(results(plan, found))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        plan, steps, batch = ctx.plan, ctx.steps, ctx.batch
        count, given = len(plan.loop.states), len(plan.loop.states) + len(plan.driven)
        if torch.is_grad_enabled():
            tensors = ctx.saved_tensors[:given]
            return None, None, None, *composed(_plain(plan, steps, batch), tensors, grads)
        saved, first = ctx.saved_tensors, given + len(plan.drives)
        states, products = saved[first : first + count], saved[first + count :]
        whole, needed = saved[:first], ctx.needs_input_grad[3 + count :]
        places: list[Tensor] = []

        def make_room(outputs: dict[str, Tensor]) -> list[Tensor]:
            places.extend(_places(plan, whole[count:given], outputs, needed))
            return places

        outputs, adjoints = reverse(
            plan, steps, batch, whole, states, products, grads, False, make_room
        )
        found = []
        for (kind, name), place, need in zip(plan.driven, places, needed, strict=True):
            grad = outputs.get(f"d{kind}.{name}") if place is NOTHING else place
            if kind == "vector" and grad is not None:
                grad = grad.sum(0)
            found.append(grad if need else None)
        return None, None, None, *adjoints, *found


def _places(
    plan: Plan, tensors: Sequence[Tensor], outputs: dict[str, Tensor], needed: Sequence[bool]
) -> list[Tensor]:
    """Where gradients go that come from products; to that of x the loop may have a part, too."""
    outside = loop(plan, "back", tensors[0].dtype, True).outside
    found = []
    for key, tensor, need in zip(plan.driven, tensors, needed, strict=True):
        if not need or key not in outside.written:
            found.append(NOTHING)
        elif key[0] == "input" and "dinput.x" in outputs:
            found.append(outputs["dinput.x"])
        else:
            zeroed = key in outside.zeroed
            make = torch.zeros if zeroed else empty
            found.append(make(*tensor.shape, dtype=tensor.dtype))
    return found


def _plain(plan: Plan, steps: int, batch: int) -> Any:
    """The same in plain torch: its derivatives are autograd's."""
    count = len(plan.loop.states)

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        found = dict(zip(plan.driven, tensors[count:], strict=True))
        apply = linear({f"{k}_{n}": t for (k, n), t in found.items() if k in ("weight", "bias")})
        for key, node in plan.drives:
            found[key] = apply(node, found["input", "x"])
        sources = [found[key] for key in plan.sources]
        return composition(plan, steps, batch, [*tensors[:count], *sources])

    return run
