"""Which engine runs a call, and why: the fastest that fits, never in silence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from metarnn.cells import LSTM, Cell, check
from metarnn.engines import cpu, native, triton
from metarnn.engines.modes import transformed

ENGINES = ("cpu", "triton", "native", "scan", "eager")  # fastest first


@dataclass(frozen=True)
class Request:
    """What a call asks for: a cell, on what, and `needs` beyond a plain loop over time."""

    cell: Cell
    needs: tuple[str, ...] = ()
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    batch: int = 1
    gradient: bool = True


@dataclass(frozen=True)
class Choice:
    """The engine that runs a call, the reason, and why each faster one was passed over."""

    engine: str
    reason: str
    ruled_out: dict[str, str]
    details: tuple[str, ...] = ()  # how the engine shares the work

    def __str__(self) -> str:
        lines = [f"engine: {self.engine}, {self.reason}"]
        lines += [f"  {detail}" for detail in self.details]
        lines += [f"  not {name}: {why}" for name, why in self.ruled_out.items()]
        return "\n".join(lines)


REASONS = {
    "cpu": "C code generated for this cell runs all steps",
    "triton": "one Triton kernel made for this cell runs all steps",
    "native": "torch's own fused kernels (cuDNN, oneDNN) compute this cell",
    "scan": "the cell is linear in its state, so a parallel scan runs all steps",
    "eager": "a loop over time in plain torch runs any cell",
}


def choose(asked: str, request: Request) -> Choice:
    """The engine for a call: the one asked for, or with "auto" the fastest that can run it."""
    if "teacher" in request.needs and request.cell.state_is_output:
        return Choice("eager", "the true outputs are given, so all steps run at once", {})
    if asked != "auto":
        why = CANNOT[asked](request)
        if why:
            raise ValueError(f"engine={asked!r} cannot run this: {why}. Use 'auto'.")
        return Choice(asked, "as asked", {})
    ruled_out: dict[str, str] = {}
    for engine in ENGINES:
        why = CANNOT[engine](request) or _slower(engine, request)
        if not why:
            return Choice(engine, REASONS[engine], ruled_out)
        ruled_out[engine] = why
    raise ValueError(f"no engine can run this: {ruled_out}")


def explain(layer: Any, *args: Any, **kwargs: Any) -> Choice:
    """Which engine a call `layer(*args, **kwargs)` would use, why, and what was ruled out.

    >>> print(explain(metarnn.GRU(8, 16, reset="before", engine="auto"), torch.zeros(5, 2, 8)))
    engine: cpu, C code generated for this cell runs all steps
    """
    if not hasattr(layer, "choose"):
        check.refuse("layer", type(layer).__name__, "a metarnn layer")
    return layer.choose(*args, **kwargs)


def circumstances() -> tuple[bool, ...]:
    """What a choice depends on beside the request; it may change from call to call."""
    return transformed(), cpu.broken(), triton.broken()


def _slower(engine: str, request: Request) -> str:
    """Why an engine that could run a call is passed over."""
    if engine == "cpu":
        return _native_is_faster(request)
    if engine == "triton" and request.device == "cpu":
        return "Triton's interpreter is there for tests"
    return ""


def _native_is_faster(request: Request) -> str:
    # Measured on 2 cores (docs/results.md): without gradients oneDNN's LSTM is ahead at batches
    # above 8; with gradients, with lengths, and for GRU and Elman generated C is.
    if type(request.cell) is not LSTM or request.gradient or request.batch <= 8 or request.needs:
        return ""
    if request.dtype != torch.float32 or request.cell.proj_size or _native_cannot(request):
        return ""
    return f"oneDNN's LSTM is faster at a batch of {request.batch} without gradients"


def _cpu_cannot(request: Request) -> str:
    if request.device != "cpu":
        return f"it runs on a CPU, the layer is on {request.device}"
    if transformed():
        return "torch.func and forward-mode derivatives do not see into generated code"
    return cpu.obstacle(request.cell)


def _triton_cannot(request: Request) -> str:
    if transformed():
        return "torch.func and forward-mode derivatives do not see into generated code"
    return triton.obstacle(request.cell, request.device, request.dtype)


def _native_cannot(request: Request) -> str:
    if not native.op(request.cell):
        return f"torch has no kernel for this {type(request.cell).__name__}"
    foreign = [need for need in request.needs if need != "lengths"]
    if foreign:
        return f"torch's kernel knows no {foreign[0]}"
    if transformed():
        return "torch.func and forward-mode derivatives do not see through torch's kernels"
    return ""


def _scan_cannot(request: Request) -> str:
    if not request.cell.linear:
        return f"{type(request.cell).__name__} is not linear in its state"
    return _no_checkpoints(request)


def _no_checkpoints(request: Request) -> str:
    if "checkpoint_every" in request.needs and transformed():
        return "checkpoint_every works with plain autograd only, not under torch.func"
    return ""


CANNOT = {
    "cpu": _cpu_cannot,
    "triton": _triton_cannot,
    "native": _native_cannot,
    "scan": _scan_cannot,
    "eager": _no_checkpoints,
}
