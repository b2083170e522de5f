"""How long things take beside one another, on a machine that is never quite at rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch


def interleaved(
    calls: Mapping[str, Callable[[], Any]],
    *,
    seconds: float = 1.0,
    rounds: int = 5,
    slow: Collection[str] = (),
    slow_rounds: int = 2,
    warmup: int = 1,
) -> dict[str, float]:
    """The median time of each call in milliseconds.

    The calls take turns, so that what disturbs the machine disturbs all of them alike. After
    `warmup` untimed rounds, rounds go on until `seconds` have passed, but not before `rounds` of
    them. Those named in `slow` take part in the first `slow_rounds` of them only.

    >>> times = interleaved({"short": lambda: sum(range(10)), "long": lambda: sum(range(9999))})
    >>> times["short"] < times["long"]
    True
    """
    for _ in range(warmup):
        for call in calls.values():
            call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    done = 0
    while done < rounds or time.perf_counter() < end:
        for name, call in calls.items():
            if name not in slow or done < slow_rounds:
                found[name].append(_milliseconds(call))
        done += 1
    return {name: median(times) for name, times in found.items()}


def captured(call: Callable[[], Any]) -> Callable[[], None]:
    """The same work as a CUDA graph: no Python and no launch takes part in it any more."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


@contextmanager
def multiplying(tf32: bool) -> Generator[None]:
    """With TF32 or without, whoever multiplies: torch has a switch for each, set differently."""
    switches: tuple[Any, ...] = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [switch.allow_tf32 for switch in switches]
    for switch in switches:
        switch.allow_tf32 = tf32
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.allow_tf32 = value


def _milliseconds(call: Callable[[], Any]) -> float:
    _finish()
    start = time.perf_counter()
    call()
    _finish()
    return 1000 * (time.perf_counter() - start)


def _finish() -> None:
    """Wait for what was handed to a GPU: a call there returns before its work is done."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
