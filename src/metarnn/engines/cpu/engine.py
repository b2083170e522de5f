"""The engine of a CPU: each pass of a call is one call of generated C."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import LSTM, Cell
from metarnn.engines import native
from metarnn.engines.autograd import LoopResults, Tensors
from metarnn.engines.cpu.compile import CannotCompile, compiler
from metarnn.engines.cpu.loops import (
    BackwardCall,
    CallShape,
    ForwardCall,
    backward_call,
    forward_call,
    loop_kernel,
    projectable,
)
from metarnn.engines.cpu.memory import contiguous
from metarnn.engines.cpu.stream import Step
from metarnn.engines.engine import FusedEngine, Request, is_concrete
from metarnn.engines.modes import transformed, watched
from metarnn.engines.plan import LoopPlan, plan_loop, untraceable
from metarnn.engines.prologue import LoopCall
from metarnn.engines.reference import run_loop, run_projected_loop
from metarnn.engines.weight_gradients import Sums, loop_gradients

NO_ADDRESS = torch.empty(0, device="cpu")  # its address is 0
COMPUTED = {torch.float64: torch.float64}  # the dtype of a loop; for any other dtype float32


class CpuCall(LoopCall):
    """A loop at one size; if `projected`, with the products of x before it and all gradients of
    weights after it in the same program.

    Its arguments are the initial states, then `plan.loop_arguments` or `plan.projection_arguments`.
    """

    def __init__(self, shape: CallShape, projected: bool) -> None:
        self.shape, self.projected = shape, projected
        self.plan, self.steps, self.batch, self.dtype = shape
        self.count = len(self.plan.states)

    @cached_property
    def _infer(self) -> ForwardCall:
        return forward_call(self.shape, "infer", self.projected)

    @cached_property
    def _train(self) -> ForwardCall:
        # If the backward pass cannot be compiled, better now than later.
        _ = self._backward
        return forward_call(self.shape, "train", self.projected)

    @cached_property
    def _backward(self) -> BackwardCall:
        return backward_call(self.shape, self.projected)

    @property
    def saved_count(self) -> int:
        return self._train.saved_count

    def forward(self, arguments: Sequence[Tensor], train: bool) -> tuple[Sequence[Tensor], Tensors]:
        call = self._train if train else self._infer
        workspace = call.allocate()
        call.run([*arguments, *workspace])
        return call.results(workspace), call.saved(workspace) if train else ()

    def backward(
        self, arguments: Any, saved: Any, gradients: Tensors, needed: Sequence[bool]
    ) -> Tensors:
        if not self.projected:
            return super().backward(arguments, saved, gradients, needed)
        call = self._backward
        workspace = call.allocate()
        results = call.gradients(workspace, needed[self.count :])
        # Hooks may have unpacked something that lies in memory another way.
        read = [contiguous(tensor) for tensor in (*arguments[self.count :], *saved)]
        places = [NO_ADDRESS if place is None else place for place in results]
        call.run([*read, *call.result_gradients(gradients), *workspace, *places])
        return [*workspace[call.finals], *call.summed(results)]

    def launch(self, arguments: Sequence[Tensor], train: bool, dry: bool = False) -> LoopResults:
        which = "train" if train else "infer"
        # Under torch.compile sizes are symbols: nothing of them is kept.
        call = (
            ForwardCall(self.shape, which, False) if dry else forward_call(self.shape, which, False)
        )
        workspace = call.allocate()
        if not dry:
            call.run([*arguments, *workspace])
        return LoopResults(
            workspace[call.finals],
            [workspace[k] for k in call.own],
            [workspace[k] for k in call.states.values()],
            [workspace[k] for k in call.products],
        )

    def loop_backward(
        self,
        arguments: Any,
        states: Sequence[Tensor],
        saved: Sequence[Tensor],
        gradients: Tensors,
        needed: Sequence[bool],
        dry: bool = False,
        sums: Sums | None = None,
    ) -> list[Tensor | None]:
        call = BackwardCall(self.shape, False) if dry else backward_call(self.shape, False)
        workspace, adjoints = call.allocate(), call.result_gradients(gradients, own=dry)
        if not dry:
            read = [contiguous(tensor) for tensor in (*arguments[self.count :], *states, *saved)]
            call.run([*read, *adjoints, *workspace])
        outputs = {name: workspace[k] for name, k in call.outputs.items()}
        return loop_gradients(
            self.plan, self.steps, arguments, states, outputs, workspace[call.finals], needed, sums
        )

    def reference(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        run = run_projected_loop if self.projected else run_loop
        return run(self.plan, self.steps, self.batch, arguments)


cpu_call = lru_cache(maxsize=4096)(CpuCall)


class CpuEngine(FusedEngine):
    name = "cpu"
    reason = "C code generated for this cell runs all steps"
    kernels = "generated C code"
    # A norm of rows that lie in the cache costs less than a pass of its own over memory.
    products_only = True

    def obstacle(self, request: Request) -> str:
        if request.device_type != "cpu":
            return f"it runs on a CPU, the layer is on {request.device_type}"
        if transformed():
            return "torch.func and forward-mode derivatives do not see into generated code"
        if not self.failure and not compiler():
            self.give_up(
                CannotCompile("no C compiler was found (looked for $CC, cc, gcc and clang)")
            )
        return self.failure or untraceable(request.cell)

    def slower(self, request: Request) -> str:
        # Measured on 2 cores (docs/results.md): without gradients oneDNN's LSTM is ahead at batches
        # above 8; with gradients, with lengths, and for GRU and Elman generated C is.
        if type(request.cell) is not LSTM or request.gradient or request.batch <= 8:
            return ""
        if request.needs or request.dtype != torch.float32 or request.cell.proj_size:
            return ""
        if not native.op(request.cell):
            return ""
        return f"oneDNN's LSTM is faster at a batch of {request.batch} without gradients"

    def projects(self, plan: LoopPlan, x: Tensor) -> bool:
        return x.dtype == _computed(x.dtype) and projectable(plan) and not watched("cpu")

    def arguments(self, tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
        wide = _computed(dtype)
        return [contiguous(t if t.dtype == wide else t.to(wide)) for t in tensors]

    def loop_call(
        self, plan: LoopPlan, steps: int, batch: int, dtype: torch.dtype, state: Sequence[Tensor]
    ) -> CpuCall:
        shape = CallShape(plan, steps, batch, state[0].dtype)
        return cpu_call(shape, False) if is_concrete(steps, batch) else CpuCall(shape, False)

    def projected_call(
        self, plan: LoopPlan, steps: int, batch: int, dtype: torch.dtype, state: Sequence[Tensor]
    ) -> CpuCall:
        return cpu_call(CallShape(plan, steps, batch, state[0].dtype), True)

    def sources(self, request: Request) -> dict[str, str]:
        plan = plan_loop(request.cell, products_only=True)
        passes = {"forward": "train", "backward": "backward"}
        return {
            name: loop_kernel(plan, which, _computed(request.dtype), projectable(plan)).source
            for name, which in (passes if request.gradient else {"forward": "infer"}).items()
        }

    def step(self, cell: Cell, dtype: torch.dtype) -> Step | None:
        """One step of a cell as a call of generated C; None where that cannot be."""
        if dtype not in (torch.float32, torch.float64) or self.obstacle(Request(cell)):
            return None
        try:
            return Step(cell, dtype)
        except CannotCompile as error:
            self.give_up(error)
            return None


def _computed(dtype: torch.dtype) -> torch.dtype:
    return COMPUTED.get(dtype, torch.float32)
