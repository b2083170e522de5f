"""How many threads a call takes, and how they share its work."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from metarnn.engines.cpu.program import Program

# Multiply-adds from which a second thread pays: of one step, where threads share the units and wait
# for one another at each; of all steps, where each has sequences of its own; and of the projections
# around a loop that only one thread goes through.
MIN_STEP_WORK = 10_000
MIN_LOOP_WORK = 200_000
MIN_PROJECTION_WORK = 1_000_000
# Each of the threads has r sequences of its own where a step has at most r² times as many weights.
# Else each has a part of the weights, which stays in its cache, but they wait for one another at
# each step and read what the others have written (measured at H = 64 to 640, r = 1 to 16).
MAX_WEIGHTS_BY_SEQUENCE = 32_768


class ThreadSplit(NamedTuple):
    threads: int
    loop_threads: int  # of them, how many go through the loop
    by_sequence: bool  # each has sequences of its own; else they share the units of all


def split_work(program: Program, steps: int, batch: int, available: int) -> ThreadSplit:
    """Return how many threads a call takes of those `available`, and how they share its work."""
    loop_threads, by_sequence = _split_loop(program, steps, batch, available)
    projection_work = program.projections.multiply_adds * steps * batch
    if loop_threads == 1 and projection_work >= MIN_PROJECTION_WORK:
        return ThreadSplit(available, 1, True)
    return ThreadSplit(loop_threads, loop_threads, by_sequence)


def _split_loop(program: Program, steps: int, batch: int, available: int) -> tuple[int, bool]:
    weights, rows = program.multiply_adds, batch // available
    if rows and weights <= MAX_WEIGHTS_BY_SEQUENCE * rows * rows:
        work = (weights or 8 * program.widest) * batch * steps
        return (available if work >= MIN_LOOP_WORK else 1), True
    parts = program.tiles if program.tiled else batch * program.tiles
    work = weights * batch if weights else program.widest * batch * steps
    return (max(1, min(available, parts)) if work >= MIN_STEP_WORK else 1), False


_HOME = os.getpid()  # OpenMP's threads do not follow into a forked child


def openmp() -> int:
    """Return the address of the table of OpenMP functions that torch uses; 0 for none."""
    table = _openmp() if os.getpid() == _HOME else None
    return ctypes.addressof(table) if table else 0


@lru_cache(maxsize=1)
def _openmp() -> Any:
    """`openmp` of runtime/launch.c; None where torch has loaded another kind of library."""
    folder = Path(torch.__file__).parent / "lib"
    try:
        library = ctypes.CDLL(str(next(folder.glob("libtorch_cpu.*"))))
        names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
        functions = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
    except (StopIteration, OSError, AttributeError):
        return None
    return (ctypes.c_void_p * 3)(*functions)
