"""The loop as one differentiable function of states, inputs and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.anyorder import composed, further
from metarnn.engines.composition import Found, composition, gradients, results
from metarnn.engines.cpu.memory import plain
from metarnn.engines.cpu.passes import Back, Forward, Size, back_pass, forward_pass
from metarnn.engines.plan import Plan


def fused(plan: Plan, steps: int, batch: int, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Final states [B, n], then kept outputs [T, B, n], from states and `plan.sources`."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return _Fused.apply(plan, steps, batch, *tensors)  # type: ignore[return-value]
    return results(plan, forward(plan, "infer", steps, batch, tensors))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, steps: int, batch: int, *tensors: Tensor) -> Any:
        # If the way back cannot be compiled, better now than later.
        back_pass(Size(plan, steps, batch, tensors[0].dtype))
        found = forward(plan, "train", steps, batch, tensors)
        ctx.save_for_backward(*tensors, *found.states, *found.saved)
        ctx.plan, ctx.steps, ctx.batch = plan, steps, batch
        ctx.set_materialize_grads(False)
        return tuple(results(plan, found))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        plan, steps, batch = ctx.plan, ctx.steps, ctx.batch
        count = len(plan.loop.states)
        given, kept = count + len(plan.sources), ctx.saved_tensors  # which hooks unpack once
        tensors, saved = kept[:given], kept[given:]
        if further(grads):
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
    plan: Plan, which: str, steps: int, batch: int, tensors: Sequence[Tensor], dry: bool = False
) -> Found:
    """Run the loop "infer" or "train"; with `dry` only make room for what it would find."""
    make = Forward if dry else forward_pass  # of sizes that are no numbers nothing is kept
    made = make(Size(plan, steps, batch, tensors[0].dtype), which)
    room = made.room()
    if not dry:
        made.run([*tensors, *room])
    own = [room[made.outputs[name]] for name, shared in plan.results if shared is None]
    saved = [room[k] for k in made.products]
    return Found(room[made.finals], own, [room[k] for k in made.states.values()], saved)


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
    make = Back if dry else back_pass
    made = make(Size(plan, steps, batch, tensors[0].dtype))
    room, given = made.room(), made.given(grads, own=dry)
    if not dry:
        # Hooks may have unpacked something that lies in memory another way.
        read = [plain(tensor) for tensor in (*tensors[made.count :], *states, *products)]
        made.run([*read, *given, *room])
    outputs = {name: room[k] for name, k in made.outputs.items()}
    return gradients(plan, steps, tensors, states, outputs, room[made.finals], needed)
