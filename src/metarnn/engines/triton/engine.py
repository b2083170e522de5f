"""The engine of a GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metarnn.cells import Cell
from metarnn.engines.autograd import EngineFailure
from metarnn.engines.engine import FusedEngine, Request, is_concrete
from metarnn.engines.modes import observed, transformed
from metarnn.engines.plan import LoopPlan, plan_loop, untraceable
from metarnn.engines.prologue import LoopCall, ProjectedCall
from metarnn.graph import trace_cell

if TYPE_CHECKING:
    from metarnn.engines.triton.loops import CallShape, LoopKernels

# Operations of a step. The time that Triton takes grows faster than with their square: a mixture of
# 771 takes it two to four minutes, one of 954 was not done after five.
MOST_OPERATIONS = 900
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class CannotLaunch(EngineFailure):
    """A kernel could not be compiled, or not be launched the first time."""


def interpreted() -> bool:
    """Whether Triton's interpreter runs kernels, on a CPU: one program after the other."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@lru_cache(maxsize=1)
def _installed() -> bool:
    return find_spec("triton") is not None


class TritonEngine(FusedEngine):
    name = "triton"
    reason = "one Triton kernel made for this cell runs all steps"
    kernels = "generated GPU kernels"
    products_only = False

    def obstacle(self, request: Request) -> str:
        if transformed():
            return "torch.func and forward-mode derivatives do not see into generated code"
        device = request.device_type
        if device != "cuda" and not (interpreted() and device == "cpu"):
            return f"it runs on a GPU, the layer is on {device}"
        if not _installed():
            return "Triton is not installed (pip install triton)"
        if request.dtype not in DTYPES:
            return f"it computes in float32, bfloat16 or float16, not in {request.dtype}"
        return self.failure or untraceable(request.cell) or _too_large(request.cell)

    def slower(self, request: Request) -> str:
        return "Triton's interpreter is there for tests" if request.device_type == "cpu" else ""

    def projects(self, plan: LoopPlan, x: Tensor) -> bool:
        return bool(plan.projections) and not observed()

    def arguments(self, tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
        numeric = (t.to(dtype) if t.dtype == torch.bool else t for t in tensors)
        return [t.resolve_neg().contiguous() for t in numeric]

    def loop_call(
        self, plan: LoopPlan, steps: int, batch: int, dtype: torch.dtype, state: Sequence[Tensor]
    ) -> LoopCall:
        from metarnn.engines.triton.call import TritonCall, triton_call

        make = triton_call if is_concrete(steps, batch) else TritonCall
        return make(self, *_sized(plan, steps, batch, dtype, state))

    def projected_call(
        self, plan: LoopPlan, steps: int, batch: int, dtype: torch.dtype, state: Sequence[Tensor]
    ) -> ProjectedCall:
        from metarnn.engines.triton.call import projected_call

        return projected_call(self, *_sized(plan, steps, batch, dtype, state))

    def describe(self, request: Request) -> tuple[str, ...]:
        from metarnn.engines.triton.describe import describe

        return describe(request)

    def sources(self, request: Request) -> dict[str, str]:
        from metarnn.engines.triton.loops import loop_kernels

        kernels = loop_kernels(plan_loop(request.cell)).of(request.gradient)
        return {which: kernel.program.source for which, kernel in kernels.items()}

    def give_up(self, error: EngineFailure) -> None:
        super().give_up(CannotLaunch(f"a kernel could not be compiled: {error}"))


def _sized(
    plan: LoopPlan, steps: int, batch: int, dtype: torch.dtype, state: Sequence[Tensor]
) -> tuple[LoopKernels, CallShape]:
    from metarnn.engines.triton.loops import CallShape, loop_kernels

    dtypes = tuple(part.dtype for part in state)
    return loop_kernels(plan), CallShape(steps, batch, dtypes, dtype, state[0].device)


@lru_cache(maxsize=1024)
def _too_large(cell: Cell) -> str:
    count = len(trace_cell(cell).nodes)
    if count <= MOST_OPERATIONS:
        return ""
    return f"its step has {count:,} operations, for which Triton would compile too long"
