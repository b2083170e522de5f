"""What launches need of a device: functions made of source, SMs, counters and the timeout flag."""

from __future__ import annotations

import hashlib
import linecache
import os
import warnings
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.engines.triton.engine import CannotLaunch, interpreted

LONG = 1500  # lines of a kernel, of which some are left out; a Mogrifier of five rounds has 1150
COUNTER = 32  # counters per group of programs: a cache line


def function(name: str, source: str) -> Any:
    """The kernel of that name, made of its source."""
    # Triton reads a function's source through linecache, so it needs no file on disk.
    path = f"<metarnn {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    scope: dict[str, Any] = {"__name__": "metarnn.engines.triton.generated"}
    exec(compile(source, path, "exec"), scope)
    return scope[name]


def warn_if_long(source: str) -> None:
    """Warn where a kernel will be compiled for so long that one might think that it hangs."""
    lines = source.count("\n")
    if lines > LONG and not interpreted():
        warnings.warn(
            f"Triton compiles a kernel of {lines:,} lines, for minutes perhaps; kept on disk.",
            RuntimeWarning,
            stacklevel=2,
        )


def current(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches kernels on the current device, which need not be that of the data."""
    elsewhere = device.type == "cuda" and device.index not in (None, torch.cuda.current_device())
    return torch.cuda.device(device) if elsewhere else nullcontext()


@contextmanager
def first_launch(done: bool) -> Generator[None]:
    """Where a kernel runs for the first time: then it is compiled, which may fail."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        if done or interpreted():
            raise
        raise CannotLaunch(_reason(error)) from error


def _reason(error: Exception) -> str:
    """The line that says what is wrong: a compiler's message ends with how to call it again."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    telling = (line for line in lines if "error" in line.lower() or "fatal" in line.lower())
    return next(telling, lines[-1])


@lru_cache(maxsize=64)
def sm_count(device: torch.device) -> int:
    """How many of a GPU's SMs a loop may take: METARNN_SMS, by default all."""
    if device.type != "cuda":
        return 1
    count = torch.cuda.get_device_properties(device).multi_processor_count
    setting = os.environ.get("METARNN_SMS", "") or str(count)
    if not setting.isdecimal() or not 1 <= int(setting) <= count:
        check.refuse("METARNN_SMS", setting, f"a number from 1 to {count}")
    return int(setting)


_counters: dict[tuple[int, int], Tensor] = {}  # by device and stream, all zero


def counters(groups: int, device: torch.device) -> Tensor:
    """Zeros: the counters of the barriers of so many groups of programs.

    The last program of a group to end resets its counters, so that one array does for all launches
    of a stream. A captured graph may run on any: it gets its own.
    """
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return torch.zeros(groups * COUNTER, dtype=torch.int32, device=device)
    index = device.index or 0
    key = index, torch._C._cuda_getCurrentRawStream(index)  # pyright: ignore[reportPrivateUsage]
    kept = _counters.get(key)
    if kept is None or len(kept) < groups * COUNTER:
        size = COUNTER * max(groups, sm_count(device))
        kept = _counters[key] = torch.zeros(size, dtype=torch.int32, device=device)
    return kept


@lru_cache(maxsize=64)
def timeout_flag(device: torch.device) -> tuple[Tensor, Any]:
    """A flag on the host that a kernel can write: no need to wait for it to see that it is not set.

    As a tensor, and as an array, which is read in no time.
    """
    flag = torch.zeros(1, dtype=torch.int32)
    flag = flag.pin_memory() if device.type == "cuda" else flag
    return flag, flag.numpy()


def raise_timeout(device: torch.device) -> None:
    """Raise an error if an earlier kernel set the timeout flag."""
    _, flag = timeout_flag(device)
    if flag[0]:
        flag[0] = 0
        _counters.clear()  # those of programs that gave up stay as they are
        raise RuntimeError(
            "A kernel that metarnn launched earlier gave up waiting: its programs wait for one "
            "another and did not all run at the same time. Its results are not to be used. Run "
            "again with engine='eager', and please report the cell and the sizes."
        )
