"""Kernels for a GPU compiled before anything is timed, by several processes at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch

from metarnn.bench.cells import Case, measure
from metarnn.bench.timing import multiplying
from metarnn.search.workers import ends_with_parent

PROCESSES = 12  # each holds some 500 MB of the GPU


def compiled_ahead(
    cases: Sequence[Case], device: str, dtype: torch.dtype, tf32: bool
) -> Generator[Case]:
    """Run each case once, for what it leaves in the caches of compilers; yields those done.

    A case that fails here fails again where it is measured, and says why there.
    """
    count = min(PROCESSES, len(os.sched_getaffinity(0)), len(cases))
    # A forked process would share threads and a GPU's context with this one.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, _start) as pool:
        done = {pool.submit(_once, case, device, dtype, tf32): case for case in cases}
        try:
            for future in as_completed(done):
                yield done[future]
        finally:
            pool.shutdown(cancel_futures=True)


def _start() -> None:
    ends_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who pressed Ctrl-C is answered by the parent
    torch.set_num_threads(1)


def _once(case: Case, device: str, dtype: torch.dtype, tf32: bool) -> None:
    with multiplying(tf32):
        measure(case, device, dtype, seconds=0.0, rounds=1, loop=False)
