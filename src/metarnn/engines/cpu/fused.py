"""The loop as one differentiable function of states, inputs and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.anyorder import composed
from metarnn.engines.composition import Found, composition, gradients, results
from metarnn.engines.cpu.kernel import Kernel
from metarnn.engines.cpu.kernels import kernel
from metarnn.engines.cpu.layout import SUMMED
from metarnn.engines.plan import Plan

Arrays = dict[tuple[str, str], Tensor]


def fused(plan: Plan, steps: int, batch: int, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Final states [B, n], then kept outputs [T, B, n], from states and `plan.sources`."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return _Fused.apply(plan, steps, batch, *tensors)  # type: ignore[return-value]
    return results(plan, forward(plan, "infer", steps, batch, tensors))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, steps: int, batch: int, *tensors: Tensor) -> Any:
        kernel(plan, "back", tensors[0].dtype)  # if it cannot be compiled, better now than later
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
    plan: Plan, which: str, steps: int, batch: int, tensors: Sequence[Tensor], dry: bool = False
) -> Found:
    """Run the loop "infer" or "train"; with `dry` only make room for what it would find."""
    first, train = tensors[0], which == "train"
    made = kernel(plan, which, first.dtype)
    arrays: Arrays = dict(zip(plan.sources, tensors[len(plan.states) :], strict=True))
    slots, states = [], []
    for (width, key, initial, holds_output), tensor in zip(plan.states, tensors, strict=False):
        kept = steps + 1 if train or holds_output else 2
        array = first.new_empty(kept, batch, width)
        slots.append(kept)
        states.append(array)
        arrays[key], arrays[initial] = array, tensor
    outputs = _call(made, arrays, slots, steps, batch, dry)
    # Copies: whoever zeroes a state that was returned must not zero an output with it.
    last = (0 if dry else steps % kept for kept in slots)
    finals = [array[k].clone() for array, k in zip(states, last, strict=True)]
    saved = range(len(plan.products)) if train else ()
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
    outputs, adjoints = _reverse(plan, steps, batch, tensors, states, products, grads, dry)
    return gradients(plan, steps, tensors, states, outputs, adjoints, needed)


def _reverse(
    plan: Plan,
    steps: int,
    batch: int,
    tensors: Sequence[Tensor],
    states: Sequence[Tensor],
    products: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    dry: bool,
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """The outputs of the reverse loop, and the adjoints of the initial states."""
    dtype, widths = tensors[0].dtype, plan.loop.states
    arrays: Arrays = dict(zip(plan.sources, tensors[len(widths) :], strict=True))
    adjoints = [torch.empty(2, batch, width, dtype=dtype) for width in widths]

    def given(grad: Tensor | None, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=dtype) if grad is None else grad.contiguous()

    for k, width in enumerate(widths):
        arrays["input", f"before.{k}"] = states[k]
        arrays["state", str(k)] = adjoints[k]
        arrays["initial", str(k)] = given(grads[k], batch, width)
    for i, product in enumerate(products):
        arrays["input", f"product.{i}"] = product
    for (name, k), grad in zip(plan.loop.outputs.items(), grads[len(widths) :], strict=True):
        arrays["input", f"grad.{name}"] = given(grad, steps, batch, plan.loop.nodes[k].width)
    outputs = _call(kernel(plan, "back", dtype), arrays, [2] * len(widths), steps, batch, dry)
    return outputs, [adjoint[0 if dry else steps % 2] for adjoint in adjoints]


def _call(
    kernel: Kernel, arrays: Arrays, slots: list[int], steps: int, batch: int, dry: bool
) -> dict[str, Tensor]:
    """Run a kernel; its outputs [T, B, n], or sums over time [B, n], by name."""
    outputs = {
        name: torch.zeros(batch, width, dtype=kernel.dtype)
        if name.startswith(SUMMED)
        else torch.empty(steps, batch, width, dtype=kernel.dtype)
        for name, width in kernel.program.outputs.items()
    }
    for name, output in outputs.items():
        arrays["output", name] = output
    if not dry:
        kernel(arrays, slots, steps, batch)
    for alias, name in kernel.program.aliases.items():
        outputs[alias] = outputs[name]
    return outputs
