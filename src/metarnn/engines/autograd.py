"""Planned calls: one differentiable function on every engine and with every prologue, and a cache.

The first derivative is the engine's; all others are those of the same call in plain torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from metarnn.engines.modes import autocast_dtype, observed, transformed

Tensors = Sequence[Tensor | None]
Recompute = Callable[[Tensors], Sequence[Tensor]]


MOST_CALLS = 1000  # that a layer keeps


class EngineFailure(RuntimeError):
    """An engine that was chosen could not compile or launch its kernels."""

    engines: ClassVar[int] = 0  # that have failed in this process: a choice depends on it


class CallPlan(ABC):
    """All that follows from shapes, dtypes and modes of a call, before its tensors are there.

    A plan is a pure function of tensors: from arguments in a fixed order to the final states
    [1, B, n] and the outputs of the loop [T, B, n]. It holds no tensors, and all calls of the same
    shapes share it.
    """

    dtype: torch.dtype  # of products

    @property
    @abstractmethod
    def saved_count(self) -> int:
        """How many tensors `forward` saves."""

    @abstractmethod
    def forward(self, arguments: Sequence[Tensor], train: bool) -> tuple[Sequence[Tensor], Tensors]:
        """The results and, to train, what the backward pass reads beside the arguments."""

    @abstractmethod
    def backward(
        self, arguments: Tensors, saved: Tensors, gradients: Tensors, needed: Sequence[bool]
    ) -> Tensors:
        """The gradients of the arguments that need one, from those of the results."""

    @abstractmethod
    def reference(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """The same results in plain torch."""

    def kept(self, arguments: Sequence[Tensor]) -> Tensors:
        """The arguments, None for those that the backward pass does not read."""
        return arguments

    def give_up(self, error: EngineFailure) -> None:
        """Have no later call take this engine, and warn."""
        raise error

    def __call__(
        self, arguments: Sequence[Tensor], recompute: Recompute | None = None
    ) -> Sequence[Tensor]:
        """The results, differentiable. `recompute` fills in the arguments that were not kept."""
        if torch.is_grad_enabled():
            for argument in arguments:
                if argument.requires_grad:
                    return _Call.apply(self, recompute, *arguments)  # type: ignore[return-value]
        return self.forward(arguments, False)[0]


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: CallPlan, recompute: Recompute | None, *arguments: Tensor) -> Any:
        results, saved = plan.forward(arguments, True)
        ctx.save_for_backward(*plan.kept(arguments), *saved)
        ctx.plan, ctx.recompute, ctx.count = plan, recompute, len(arguments)
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        plan, tensors, count = ctx.plan, ctx.saved_tensors, ctx.count  # hooks unpack them once
        arguments = tensors[:count]
        if not higher_order(gradients):
            needed = ctx.needs_input_grad[2:]
            try:
                own = plan.backward(arguments, tensors[count:], gradients, needed)
                return None, None, *own
            except EngineFailure as error:
                plan.give_up(error)
        if ctx.recompute is not None:
            arguments = ctx.recompute(arguments)
        return None, None, *pull_back(plan.reference, arguments, gradients)


def cast(tensors: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
    """These in one dtype; all that are of another are cast in one launch."""
    if not tensors:
        return tensors
    results = list(tensors)
    places = [k for k, tensor in enumerate(results) if tensor.dtype != dtype]
    if places:
        wide = [results[k] for k in places]
        narrow = [torch.empty_like(tensor, dtype=dtype) for tensor in wide]
        torch._foreach_copy_(narrow, wide)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        for k, tensor in zip(places, narrow, strict=True):
            results[k] = tensor
    return results


def higher_order(gradients: Tensors) -> bool:
    """Whether a backward pass is itself differentiated, or run for many gradients at once."""
    transformed = torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]
    if transformed or torch.is_grad_enabled():
        return True
    # With is_grads_batched a gradient stands for many of them and has no memory of its own.
    stored = torch._C._has_storage  # pyright: ignore[reportPrivateUsage]
    return not all(grad is None or stored(grad) for grad in gradients)


def pull_back(
    function: Callable[..., tuple[Tensor, ...]],
    arguments: Sequence[Tensor],
    gradients: Tensors,
) -> Sequence[Tensor]:
    """The vector–Jacobian product of a function in plain torch, itself differentiable.

    It is not autograd.grad of the saved tensors: where one of them depends on another, that would
    count the path between them twice.
    """
    outputs, pull, *_ = torch.func.vjp(function, *arguments)
    cotangents = tuple(
        torch.zeros_like(output) if grad is None else grad
        for grad, output in zip(gradients, outputs, strict=True)
    )
    return pull(cotangents)


class LoopResults(NamedTuple):
    """What a fused loop has computed; no two of its tensors share memory."""

    finals: list[Tensor]  # [1, B, n] each
    outputs: list[Tensor]  # results [T, B, n] that lie in no history of a state
    states: list[Tensor]  # the histories, [T + 1, B, n] where all steps are kept
    saved: list[Tensor]  # what the backward pass reads beside them, [T, B, n]


class CallCache(dict[Any, Any]):
    """Planned calls by key; None for a call that cannot be planned."""

    def keep(self, key: Any, call: Any) -> Any:
        if len(self) < MOST_CALLS:
            self[key] = call
        return call

    def __reduce__(self) -> Any:
        return CallCache, ()  # a copy of the layer begins anew


def call_key(x: Any) -> Any:
    """What the plan of a call over x depends on beside the layer; None where no call is planned.

    That is its shape, dtype and device, the modes of torch, and which engines have failed.
    """
    if type(x) is not Tensor or x.dim() != 3 or x.is_neg() or not (x.is_cpu or x.is_cuda):
        return None
    if transformed() or observed():
        return None
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return None  # a captured graph has zeros of its own
    grad, narrow = torch.is_grad_enabled(), autocast_dtype(x)
    return x.shape, x.dtype, x.device, narrow, grad, EngineFailure.engines
