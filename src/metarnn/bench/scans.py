"""How much of a GPU's memory bandwidth a scan uses, its kernels alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from metarnn.bench.timing import captured
from metarnn.cells import Cell
from metarnn.engines.plan import Key, plan_loop
from metarnn.engines.triton.loops import CallShape, loop_kernels
from metarnn.engines.triton.scan import Scan

COPIED = 1 << 28  # bytes of a copy: far more than caches hold
MOVED = ("input", "output", "state")  # arrays with a row for every step


def copy_share(
    cell: Cell, steps: int, batch: int, dtype: torch.dtype, device: str, *, train: bool
) -> float | None:
    """Bandwidth of a cell's scan as a share of a copy's; None if the cell's loop is no scan.

    Each number that a kernel reads or writes counts once. With `train` forward and backward pass
    together, else the forward pass of an inference.
    """
    moved, seconds = 0, 0.0
    for kernel in loop_kernels(plan_loop(cell)).of(train).values():
        if not isinstance(kernel, Scan):
            return None
        arrays = given(kernel, steps, batch, dtype, device)
        moved += sum(t.nbytes for (kind, _), t in arrays.items() if kind in MOVED)
        shape = CallShape(steps, batch, (dtype,), dtype, torch.device(device))
        seconds += _seconds(partial(kernel, arrays, shape, frozenset[int]()), device)
    source = torch.empty(COPIED if device == "cuda" else 1 << 20, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = 2 * source.nbytes / _seconds(partial(target.copy_, source), device)
    return moved / seconds / copy


def given(
    kernel: Scan, steps: int, batch: int, dtype: torch.dtype, device: str
) -> dict[Key, Tensor]:
    """Arrays for a kernel, of random numbers."""
    program, found = kernel.program, {}
    for kind, name in program.arrays:
        shape: tuple[int, ...] = (batch, kernel.width)
        if kind in ("input", "context", "vector"):
            width = kernel.sources[kind, name]
            shape = {"input": (steps, batch, width), "context": (batch, width)}.get(kind, (width,))
        elif kind == "output":
            shape = steps, batch, program.outputs[name]
        elif kind == "state":
            shape = steps + 1, batch, kernel.width
        elif kind == "sum":
            shape = batch, program.sums[name]
        wide = kind in ("initial", "final", "sum")
        found[kind, name] = torch.randn(
            shape, dtype=torch.float32 if wide else dtype, device=device
        )
    return found


def _seconds(call: Callable[[], Any], device: str, repeats: int = 10, rounds: int = 7) -> float:
    """Of a call; on a GPU without the time that launches take."""

    def many() -> None:
        for _ in range(repeats):
            call()

    if device != "cuda":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    again, times = captured(many), []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        again()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / repeats / 1000)
    return median(times)
