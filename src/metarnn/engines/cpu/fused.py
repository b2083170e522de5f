"""The loop as one differentiable function of states, inputs and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.anyorder import composed
from metarnn.engines.composition import composition, gradient_of_map
from metarnn.engines.cpu.kernel import Kernel
from metarnn.engines.cpu.kernels import kernel
from metarnn.engines.cpu.layout import SUMMED
from metarnn.engines.plan import Plan

Arrays = dict[tuple[str, str], Tensor]


def fused(plan: Plan, steps: int, batch: int, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Final states [B, n], then kept outputs [T, B, n], from states and `plan.sources`."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return _Fused.apply(plan, steps, batch, *tensors)  # type: ignore[return-value]
    return _forward(plan, "infer", steps, batch, tensors)[0]


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, steps: int, batch: int, *tensors: Tensor) -> Any:
        kernel(plan, "back", tensors[0].dtype)  # if it cannot be compiled, better now than later
        results, states, products = _forward(plan, "train", steps, batch, tensors)
        ctx.save_for_backward(*tensors, *states, *products)
        ctx.plan, ctx.steps, ctx.batch = plan, steps, batch
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        plan, steps, batch = ctx.plan, ctx.steps, ctx.batch
        count = len(plan.loop.states)
        given = count + len(plan.sources)
        tensors, saved = ctx.saved_tensors[:given], ctx.saved_tensors[given:]
        if torch.is_grad_enabled():
            pulled = composed(lambda *t: composition(plan, steps, batch, t), tensors, grads)
            return None, None, None, *pulled
        states, products = saved[:count], saved[count:]
        outputs, adjoints = _reverse(plan, steps, batch, tensors, states, products, grads)
        found: list[Tensor | None] = list(adjoints)
        needed = ctx.needs_input_grad[3 + count :]
        for (kind, name), tensor, need in zip(plan.sources, tensors[count:], needed, strict=True):
            if not need:
                found.append(None)
            elif kind in ("weight", "bias"):
                found.append(gradient_of_map(plan, kind, name, tensor, outputs, states, steps))
            else:
                grad = outputs.get(f"d{kind}.{name}")
                found.append(grad.sum(0) if kind == "vector" and grad is not None else grad)
        return None, None, None, *found


def _forward(
    plan: Plan, which: str, steps: int, batch: int, tensors: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Results as of `fused`; all states [slots, B, n]; the products' results [T, B, n]."""
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
    outputs = _call(made, arrays, slots, steps, batch)
    # Copies: whoever zeroes a state that was returned must not zero an output with it.
    results = [array[steps % kept].clone() for array, kept in zip(states, slots, strict=True)]
    for name, shared in plan.results:
        results.append(outputs[name] if shared is None else states[shared][1:])
    saved = range(len(plan.products)) if train else ()
    return results, states, [outputs[f"product.{i}"] for i in saved]


def _reverse(
    plan: Plan,
    steps: int,
    batch: int,
    tensors: Sequence[Tensor],
    states: Sequence[Tensor],
    products: Sequence[Tensor],
    grads: Sequence[Tensor | None],
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
    outputs = _call(kernel(plan, "back", dtype), arrays, [2] * len(widths), steps, batch)
    return outputs, [adjoint[steps % 2] for adjoint in adjoints]


def _call(
    kernel: Kernel, arrays: Arrays, slots: list[int], steps: int, batch: int
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
    kernel(arrays, slots, steps, batch)
    for alias, name in kernel.program.aliases.items():
        outputs[alias] = outputs[name]
    return outputs
