"""A generated kernel, ready to be launched."""

from __future__ import annotations

import hashlib
import linecache
import os
import threading
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.engines.triton.engine import CannotLaunch, interpreted
from metarnn.engines.triton.pack import places
from metarnn.engines.triton.program import SLOTS, Key, Program
from metarnn.engines.triton.tiling import Tiling, tile

if TYPE_CHECKING:
    from metarnn.engines.triton.loops import CallShape

LONG = 1300  # lines of a kernel, of which some are left out; a Mogrifier of five rounds has 990


@dataclass
class _Launch:
    """How a kernel is launched for one batch size and one set of types."""

    tiling: Tiling
    constants: dict[str, Any]
    packed: int  # how many weights are put in the order in which they are read
    said: dict[Key, int]  # how many partial sums of products there are, and how much mail
    meets: bool  # whether programs wait for one another
    compiled: Any = None  # what Triton made of it, once it was launched


class _Case(NamedTuple):
    """What a launch depends on."""

    batch: int
    full: frozenset[int]
    dot: torch.dtype
    split: bool
    device: torch.device


def weight_size(dot: torch.dtype) -> int:
    """The bytes of a weight on chip."""
    return dot.itemsize * (2 if _split(dot) else 1)


def _split(dot: torch.dtype) -> bool:
    """Whether a product of float32 takes three of the tensor cores' narrower ones."""
    return dot == torch.float32 and not torch.backends.cudnn.allow_tf32


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


def announce(source: str) -> None:
    """Say so where a kernel will be compiled for so long that one might think that it hangs."""
    lines = source.count("\n")
    if lines > LONG and not interpreted():
        warnings.warn(
            f"Triton compiles a kernel of {lines:,} lines, for minutes perhaps; kept on disk.",
            RuntimeWarning,
            stacklevel=2,
        )


class Kernel:
    """One program, compiled for each size of batch and type of number when it is first needed."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._own = [key for key in program.arrays if key[0] in ("pack", "partial", "mail")]
        self._launches: dict[_Case, _Launch] = {}
        self._lock = threading.Lock()

    def __call__(
        self,
        arrays: Mapping[Key, Tensor],
        size: CallShape,
        full: frozenset[int],
    ) -> None:
        """Run all steps. Arrays are contiguous; the states in `full` have a slot for every step."""
        _raise_alarm(size.device)
        case = _Case(size.batch, full, size.dot, _split(size.dot), size.device)
        known = self._launches.get(case)
        if known is not None and known.compiled is not None:
            self._run(known, case, arrays, size.steps)
            return
        announce(self.program.source)
        room = 1.0
        while True:
            try:
                with first_launch(done=False), current(size.device):
                    self._run(self._launch(case, room), case, arrays, size.steps)
                return
            except CannotLaunch as error:
                # The model of what fits on the chip was wrong: count on less of it.
                if type(error.__cause__).__name__ != "OutOfResources" or room < 0.1:
                    raise
                room *= 0.75
                self._launches.pop(case, None)

    def _launch(self, case: _Case, room: float) -> _Launch:
        with self._lock:
            if case not in self._launches:
                self._launches[case] = self._make(case, room)
            return self._launches[case]

    def _make(self, case: _Case, room: float) -> _Launch:
        available = processors(case.device)
        tiling = tile(self.program, case.batch, weight_size(case.dot), available, room)
        kept = (i for i, (_, has, _) in enumerate(self.program.states) if has)
        groups = self.program.groups
        *begins, packed = places(groups, tiling, 2 if case.split else 1)
        constants: dict[str, Any] = {
            **tiling.constants,
            **{f"FULL{i}": i in case.full for i in kept},
            **{f"AT{j}": begin for j, begin in enumerate(begins)},
            "DOT": _triton_type(case.dot),
            "SPLIT": case.split,
            "ALONE": tiling.programs == 1,
        }
        order = self.loop.arg_names[len(self.program.arrays) + 5 :]
        meets = self.program.meets and tiling.programs > 1
        summed = [g for g in groups if tiling.chunks[g.number].partial]
        said: dict[Key, int] = {("partial", str(g.number)): tiling.sums(g) for g in summed}
        for name, width in self.program.mail.items() if tiling.told else ():
            said["mail", name] = SLOTS * case.batch * width
        return _Launch(tiling, {name: constants[name] for name in order}, packed, said, meets)

    def _run(
        self,
        launch: _Launch,
        case: _Case,
        arrays: Mapping[Key, Tensor],
        steps: int,
    ) -> None:
        tiling, batch, device = launch.tiling, case.batch, case.device
        if launch.packed:
            packed = torch.empty(launch.packed, dtype=case.dot, device=device)
            said = room_for(tuple(launch.said.values()), device)
            # A kernel that hands out no sums of a product reads nothing in their place.
            arrays = {**arrays, **dict.fromkeys(self._own, packed)}
            arrays |= zip(launch.said, said, strict=True)
        pointers = [arrays[key] for key in self.program.arrays]
        at_once = tiling.groups * tiling.sequences
        for first in range(0, batch, at_once):
            groups = min(tiling.groups, -(-(batch - first) // tiling.sequences))
            tensors = (*pointers, _counters(groups, device))
            rest = (_alarm(device)[0], steps, batch, first)
            with current(device):
                _start(self.loop, launch, groups * tiling.programs, tensors, rest)

    @cached_property
    def loop(self) -> Any:
        """The kernel function, made of its source when it is first needed."""
        return function(self.program.source)


def _start(
    loop: Any, launch: _Launch, programs: int, tensors: Sequence[Tensor], rest: tuple[Any, ...]
) -> None:
    if interpreted():
        loop[programs,](*tensors, *rest, **launch.constants)
        return
    # Triton works out at every call, in tens of microseconds, which of its compiled kernels fits:
    # the one before does, if types and the alignment of all arrays are the same. Given addresses,
    # it asks the driver for none.
    addresses = [t.data_ptr() for t in tensors]
    aligned = not any(address & 15 for address in addresses)
    kind = [t.dtype for t in tensors]
    if launch.compiled is not None and aligned and launch.compiled[0] == kind:
        launch.compiled[1][programs, 1, 1](*addresses, *rest, *launch.constants.values())
        return
    tiling = launch.tiling
    made = loop[programs,](
        *tensors,
        *rest,
        **launch.constants,
        num_warps=tiling.warps,
        num_stages=tiling.stages,
        # All programs run at the same time or the launch fails, if they wait for one another.
        launch_cooperative_grid=launch.meets,
    )
    if aligned:
        launch.compiled = kind, made


def function(source: str) -> Any:
    # Triton reads a function's source through linecache, so it needs no file on disk.
    name = f"<metarnn {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": "metarnn.engines.triton.generated"}
    exec(compile(source, name, "exec"), scope)
    return scope["loop"]


@lru_cache(maxsize=64)
def processors(device: torch.device) -> int:
    """How many of a GPU's processors a loop may take: METARNN_PROCESSORS, by default all."""
    if device.type != "cuda":
        return 1
    there = torch.cuda.get_device_properties(device).multi_processor_count
    asked = os.environ.get("METARNN_PROCESSORS", "") or str(there)
    if not asked.isdecimal() or not 1 <= int(asked) <= there:
        check.refuse("METARNN_PROCESSORS", asked, f"a number from 1 to {there}")
    return int(asked)


def room_for(counts: tuple[int, ...], device: torch.device) -> tuple[Tensor, ...]:
    """Where programs hand out so many sums that they have a part of, and tell one another."""
    if not counts:
        return ()
    return torch.empty(sum(counts), dtype=torch.float32, device=device).split(counts)


def _triton_type(dtype: torch.dtype) -> Any:
    import triton.language as tl

    return {
        torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16
    }[dtype]  # fmt: skip


_open: dict[tuple[int, int], Tensor] = {}  # counters by device and stream, all zero


def _counters(groups: int, device: torch.device) -> Tensor:
    """A counter a group for its programs to meet at, each on a cache line of its own, all zero.

    The last program of a group to end sets its counter to zero again, so that one array does for
    all launches of a stream. A captured graph may run on any: it gets its own.
    """
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return torch.zeros(groups * 32, dtype=torch.int32, device=device)
    index = device.index or 0
    key = index, torch._C._cuda_getCurrentRawStream(index)  # pyright: ignore[reportPrivateUsage]
    found = _open.get(key)
    if found is None or len(found) < groups * 32:
        size = 32 * max(groups, processors(device))
        found = _open[key] = torch.zeros(size, dtype=torch.int32, device=device)
    return found


@lru_cache(maxsize=64)
def _alarm(device: torch.device) -> tuple[Tensor, Any]:
    """A number on the host that a kernel can write: no need to wait for it to know it is zero.

    As a tensor, and as an array, which is read in no time.
    """
    alarm = torch.zeros(1, dtype=torch.int32)
    alarm = alarm.pin_memory() if device.type == "cuda" else alarm
    return alarm, alarm.numpy()


def _raise_alarm(device: torch.device) -> None:
    _, alarm = _alarm(device)
    if alarm[0]:
        alarm[0] = 0
        _open.clear()  # counters of programs that gave up stay as they are
        raise RuntimeError(
            "A kernel that metarnn launched earlier gave up waiting: its programs wait for one "
            "another and did not all run at the same time. Its results are not to be used. Run "
            "again with engine='eager', and please report the cell and the sizes."
        )
