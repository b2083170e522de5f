"""The loop as one differentiable function of states, inputs and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.anyorder import composed
from metarnn.engines.composition import Found, composition, gradients, results
from metarnn.engines.cpu.kernels import loop
from metarnn.engines.cpu.memory import empty
from metarnn.engines.plan import Plan
from metarnn.engines.zeros import zeros

CPU = torch.device("cpu")


def fused(plan: Plan, steps: int, batch: int, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Final states [B, n], then kept outputs [T, B, n], from states and `plan.sources`."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return _Fused.apply(plan, steps, batch, *tensors)  # type: ignore[return-value]
    return results(plan, forward(plan, "infer", steps, batch, tensors))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, steps: int, batch: int, *tensors: Tensor) -> Any:
        loop(plan, "back", tensors[0].dtype)  # if it cannot be compiled, better now than later
        found = forward(plan, "train", steps, batch, tensors)
        ctx.save_for_backward(*tensors, *found.states, *found.saved)
        ctx.plan, ctx.steps, ctx.batch = plan, steps, batch
        ctx.set_materialize_grads(False)
        return tuple(results(plan, found))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        plan, steps, batch = ctx.plan, ctx.steps, ctx.batch
        count = len(plan.loop.states)
        given = count + len(plan.sources)
        tensors, saved = ctx.saved_tensors[:given], ctx.saved_tensors[given:]
        if torch.is_grad_enabled():
            pulled = composed(lambda *t: composition(plan, steps, batch, t), tensors, grads)
            return None, None, None, *pulled
        needed = ctx.needs_input_grad[3:]
        states, products = saved[:count], saved[count:]
        return (
            None,
            None,
            None,
            *backward(plan, steps, batch, tensors, states, products, grads, needed),
        )


def forward(
    plan: Plan,
    which: str,
    steps: int,
    batch: int,
    tensors: Sequence[Tensor],
    dry: bool = False,
    driven: bool = False,
) -> Found:
    """Run the loop "infer" or "train"; with `dry` only make room for what it would find."""
    dtype = tensors[0].dtype
    made = loop(plan, which, dtype, driven)
    slots = [steps + 1 if whole else 2 for _, whole in made.states]
    states = [
        empty(kept, batch, width, dtype=dtype)
        for kept, (width, _) in zip(slots, made.states, strict=True)
    ]
    finals = [torch.empty(batch, width, dtype=dtype) for width, _ in made.states]
    outputs = made.empty(steps, batch)
    if not dry:
        arrays = [*tensors, *states, *finals, *outputs.values()]
        made.kernel(made.places, arrays, slots, steps, batch)
    for alias, name in made.aliases.items():
        outputs[alias] = outputs[name]
    saved = range(len(plan.products)) if which == "train" else ()
    return Found(
        finals,
        [outputs[name] for name, shared in plan.results if shared is None],
        states,
        [outputs[f"product.{i}"] for i in saved],
    )


def backward(
    plan: Plan,
    steps: int,
    batch: int,
    tensors: Sequence[Tensor],
    states: Sequence[Tensor],
    products: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
    dry: bool = False,
) -> list[Tensor | None]:
    """The gradients of the loop's tensors, as far as they are needed."""
    outputs, adjoints = reverse(plan, steps, batch, tensors, states, products, grads, dry)
    return gradients(plan, steps, tensors, states, outputs, adjoints, needed)


def reverse(
    plan: Plan,
    steps: int,
    batch: int,
    tensors: Sequence[Tensor],
    states: Sequence[Tensor],
    products: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    dry: bool,
    driven: Callable[[dict[str, Tensor]], Sequence[Tensor]] | None = None,
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """The outputs of the reverse loop, and the adjoints of the initial states.

    If it is driven, it also computes gradients, for which `driven` makes room.
    """
    dtype, count = tensors[0].dtype, len(states)
    made = loop(plan, "back", dtype, driven is not None)
    shapes = [(batch, width) for width in plan.loop.states]
    shapes += [(steps, batch, plan.loop.nodes[k].width) for k in plan.loop.outputs.values()]
    given = [
        zeros(shape, dtype, CPU, dry) if grad is None else grad.contiguous()
        for grad, shape in zip(grads, shapes, strict=True)
    ]
    passing = [torch.empty(2, *shape, dtype=dtype) for shape in shapes[:count]]
    adjoints = [torch.empty(shape, dtype=dtype) for shape in shapes[:count]]
    outputs = made.empty(steps, batch)
    if not dry:
        own = [*passing, *adjoints, *outputs.values(), *(driven(outputs) if driven else ())]
        arrays = [*tensors[count:], *states, *products, *given, *own]
        made.kernel(made.places, arrays, [2] * count, steps, batch)
    for alias, name in made.aliases.items():
        outputs[alias] = outputs[name]
    return outputs, adjoints
