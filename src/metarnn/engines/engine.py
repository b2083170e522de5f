"""What an engine is: how T steps of a cell are run.

An engine is one class in a file or folder of its own, and one line in `choose.ENGINES`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from metarnn.cells import Cell, State
from metarnn.engines.autograd import EngineFailure
from metarnn.engines.modes import autocast_dtype
from metarnn.engines.plan import Key, LoopPlan, plan_recurrence
from metarnn.engines.prologue import LoopCall, ProjectedCall
from metarnn.engines.recurrence import Recurrence
from metarnn.graph import linear

# An operator of torch's in place of a loop: (plan, steps, batch, dtype of products, arguments).
Operator = Callable[[LoopPlan, int, int, torch.dtype, Sequence[Tensor]], Sequence[Tensor]]


@dataclass(frozen=True)
class Request:
    """What a call asks for: a cell, on which tensors, and `needs` beyond a plain loop over time."""

    cell: Cell
    needs: tuple[str, ...] = ()
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    batch: int = 1
    gradient: bool = True

    @property
    def device_type(self) -> str:
        return torch.device(self.device).type


class Engine(ABC):
    """A way to run T steps of a cell.

    Attributes:
        name: The engine's name in `Recurrent(engine=…)`.
        reason: Why one takes it.
        kernels: What it runs.
        failure: Why its kernels cannot be compiled or launched in this process, if that is so.
    """

    name: ClassVar[str]
    reason: ClassVar[str]
    kernels: ClassVar[str]
    failure: str = ""

    @abstractmethod
    def obstacle(self, request: Request) -> str:
        """Why this engine cannot run a call; empty if nothing is known to stand in the way."""

    def slower(self, request: Request) -> str:
        """Why `auto` prefers the next engine for a call that this one could run; empty if not."""
        return ""

    @abstractmethod
    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        """The output of all steps [T, B, O] and the state after the last one, [B, n] each."""

    def describe(self, request: Request) -> tuple[str, ...]:
        """How the work of a call is shared, a line each."""
        return ()

    def sources(self, request: Request) -> dict[str, str]:
        """The generated kernels of a call, by the pass that they run."""
        return {}

    def give_up(self, error: EngineFailure) -> None:
        """Choose this engine no more in this process, and say so once."""
        if not self.failure:
            self.failure = str(error)
            EngineFailure.engines += 1
            warnings.warn(
                f"metarnn runs without {self.kernels}, slower: {error}",
                RuntimeWarning,
                stacklevel=2,
            )


class FusedEngine(Engine):
    """An engine with kernels for the loop of a plan, forward and backward.

    Attributes:
        products_only: Whether products alone are hoisted out of the loop; see `graph.cut`.
    """

    products_only: ClassVar[bool]

    @abstractmethod
    def projects(self, plan: LoopPlan, x: Tensor) -> bool:
        """Whether the products of x before a loop can be part of its call."""

    @abstractmethod
    def arguments(self, tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
        """Tensors as kernels read them; `dtype` is that of the states."""

    @abstractmethod
    def loop_call(
        self, plan: LoopPlan, steps: int, batch: int, dtype: torch.dtype, state: Sequence[Tensor]
    ) -> LoopCall:
        """The call of a loop alone, with products in `dtype`; `state` has its dtypes and device."""

    @abstractmethod
    def projected_call(
        self, plan: LoopPlan, steps: int, batch: int, dtype: torch.dtype, state: Sequence[Tensor]
    ) -> ProjectedCall:
        """The call of a loop and the products of x before it."""

    def run(self, recurrence: Recurrence, operator: Operator | None = None) -> tuple[Tensor, State]:
        """As `Engine.run`; `operator` may stand in for the loop."""
        plan = plan_recurrence(recurrence, self.products_only)
        x, initial = recurrence.x, recurrence.state
        (steps, batch, _), dtype, narrow = x.shape, initial[0].dtype, autocast_dtype(x)
        sources, apply = plan.sources(recurrence), linear(recurrence.weights)
        projected = operator is None and self.projects(plan, x)
        keys = plan.projection_arguments if projected else plan.loop_arguments
        recompute = None
        if not projected:
            hoist = partial(plan.hoisted, dict(sources), apply, x)
            sources |= hoist()
            recompute = partial(self._recompute, hoist, keys, dtype, x.device.type, narrow)
        arguments = self.arguments([*initial, *(sources[key] for key in keys)], dtype)
        state, count = arguments[: len(initial)], len(initial)
        if operator is not None:
            results = operator(plan, steps, batch, narrow or state[0].dtype, arguments)
        else:
            make = self.projected_call if projected else self.loop_call
            results = make(plan, steps, batch, narrow or state[0].dtype, state)(
                arguments, recompute
            )
        output = plan.finish(sources, results[count:], apply, x)
        output = output if output.dtype == dtype else output.to(dtype)
        finals = zip(results[:count], initial, strict=True)
        return output, tuple(
            part[0] if part.dtype == start.dtype else part[0].to(start.dtype)
            for part, start in finals
        )

    def _recompute(
        self,
        hoist: Callable[[], dict[Key, Tensor]],
        keys: Sequence[Key],
        dtype: torch.dtype,
        device: str,
        narrow: torch.dtype | None,
        arguments: Any,
    ) -> list[Tensor]:
        """The arguments of a loop, with what was hoisted for those that were not kept."""
        with torch.autocast(device, narrow, enabled=narrow is not None):
            hoisted = hoist()
        count = len(arguments) - len(keys)
        missing = [key for key, t in zip(keys, arguments[count:], strict=True) if t is None]
        values = iter(self.arguments([hoisted[key] for key in missing], dtype))
        return [next(values) if t is None else t for t in arguments]


def is_concrete(*sizes: int) -> bool:
    """Whether sizes are numbers: under torch.compile they may be symbols, of which none is kept."""
    return all(type(size) is int for size in sizes)
