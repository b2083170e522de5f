"""A compiled program, ready to be called on tensors."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.cpu.compile import load
from metarnn.engines.cpu.emit import PRODUCTS, Program
from metarnn.engines.cpu.memory import CPU, room

# Multiply-adds from which a second thread pays: of one step, where threads meet at each, and of all
# steps, where they do not.
WORTH_A_MEETING = 10_000
WORTH_THREADS = 200_000
WORTH_WAKING = 1_000_000  # outside a loop that only one thread goes through
# Threads with r sequences each go their own way where a step has at most r² times as many weights.
# Else each has a part of the weights, which stays in its cache, but they meet at each step and read
# what the others have written (measured at H = 64 to 640, r = 1 to 16).
OWN_SEQUENCES = 32_768
ALIGNMENT = 64
KEPT = 1 << 26  # bytes of a block that stays from call to call
TURN = 7  # where in the arguments of a program it stands whether tiles go backwards at first,
SLOTS = 8  # and where the slots of its states begin


def _typed(source: str, dtype: torch.dtype) -> str:
    double = dtype == torch.float64
    return (
        f"#define REAL {'double' if double else 'float'}\n#define IS_DOUBLE {int(double)}\n{source}"
    )


@lru_cache(maxsize=2)
def _products(dtype: torch.dtype) -> int:
    """The address of the table of matrix products that all programs share."""
    library = load(_typed(PRODUCTS, dtype))
    return ctypes.addressof(ctypes.c_char.in_dll(library, "products"))


@lru_cache(maxsize=1)
def _openmp() -> Any:
    """The functions of the OpenMP library that torch has loaded; None where it is another kind."""
    folder = Path(torch.__file__).parent / "lib"
    try:
        library = ctypes.CDLL(str(next(folder.glob("libtorch_cpu.*"))))
        names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
    except (StopIteration, OSError, AttributeError):
        return None
    return (ctypes.c_void_p * 3)(*found)


_HOME = os.getpid()  # OpenMP's threads do not follow into a forked child


@dataclass(frozen=True)
class Block:
    """Memory for what only programs read: one call's at a time, of whatever kernel."""

    memory: Tensor
    address: int
    size: int  # in bytes


NOWHERE = Block(torch.empty(0, dtype=torch.uint8, device=CPU), 0, 0)
_blocks: list[Block] = []


class Frame:
    """The pointers of a call, of which one call at a time makes use.

    Those to scratch, packed weights and the like are into a block of memory that goes from call to
    call: fresh memory would have to be mapped in, page by page.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.steps, self.batch, self.threads = kernel, -1, -1, 0
        self.pointers = (ctypes.c_void_p * len(kernel.program.arrays))()
        # See `run` in epilogue.c.
        self.numbers = (ctypes.c_ssize_t * (SLOTS + kernel.program.states))()
        self.numbers[0] = kernel.products
        self.circumstances: tuple[int, ...] = ()
        self.block, self.address = NOWHERE, 0

    def measure(self, steps: int, batch: int, threads: int) -> None:
        """Find out how much room so many steps of a batch of that size and so many threads need."""
        self.steps, self.batch, self.threads = steps, batch, threads
        self.offsets, self.needed = [], ALIGNMENT
        for k, (all_, own, each, every) in self.kernel.room.items():
            self.offsets.append((k, self.needed - ALIGNMENT))
            numbers = all_ + own * threads + batch * (each + steps * every)
            size = numbers * self.kernel.dtype.itemsize
            self.needed += -(-size // ALIGNMENT) * ALIGNMENT
        self.address = -1

    def place(self) -> None:
        """Have that room, in a block that no other call has."""
        try:
            block = _blocks.pop()
        except IndexError:
            block = NOWHERE
        if block.size < self.needed:
            memory = room((self.needed,), torch.uint8, CPU)
            block = Block(memory, memory.data_ptr(), self.needed)
        self.block = block
        if block.address != self.address:
            self.address = block.address
            first = -(-self.address // ALIGNMENT) * ALIGNMENT
            for k, offset in self.offsets:
                self.pointers[k] = first + offset

    def leave(self) -> None:
        """Let another call have it."""
        if self.block.size <= KEPT:
            _blocks.append(self.block)
        self.block = NOWHERE


class Kernel:
    """A program compiled for one number type.

    Its `inner` arrays nobody else reads: (numbers a sequence, a step and sequence) of each.
    """

    def __init__(
        self,
        program: Program,
        dtype: torch.dtype,
        inner: Mapping[tuple[str, str], tuple[int, int]] = MappingProxyType({}),
    ) -> None:
        self.program, self.dtype = program, dtype
        with ThreadPoolExecutor(1) as beside:  # the first program of a machine compiles both
            products = beside.submit(_products, dtype)
            library = load(_typed(program.source, dtype))
            self.products = products.result()
        self._run = library.run
        self._run.restype = None
        self._run.argtypes = [ctypes.c_void_p] * 2
        lanes = library.vector_length()
        # What a frame has room for, by its place: (numbers at all, a thread, a sequence, a step and
        # sequence). All other arrays are given.
        self.room: dict[int, tuple[int, int, int, int]] = {}
        self.given: dict[tuple[str, str], int] = {}
        for k, (kind, name) in enumerate(program.arrays):
            if kind == "scratch":
                self.room[k] = (0, 0, program.scratch[name], 0)
            elif kind == "packed":
                width, vectors, per_tile = program.packed[name]
                self.room[k] = (-(-width // (lanes * vectors)) * per_tile * lanes, 0, 0, 0)
            elif kind == "shared":
                self.room[k] = (program.outside.shared, 0, 0, 0)
            elif kind == "own":
                self.room[k] = (0, program.outside.own, 0, 0)
            elif (kind, name) in inner:
                self.room[k] = (0, 0, *inner[kind, name])
            else:
                self.given[kind, name] = k
        self._spare: list[Frame] = []

    def __call__(
        self,
        places: Sequence[tuple[int, int]],
        tensors: Sequence[Tensor],
        slots: list[int],
        steps: int,
        batch: int,
    ) -> None:
        """Run over all steps; each place is that of a pointer and which tensor is there.

        Tensors are contiguous and of the kernel's type; slots see `Program`.
        """
        frame = self.open(steps, batch)
        pointers = frame.pointers
        for place, k in places:
            pointers[place] = address = tensors[k].data_ptr()
            if not address and tensors[k].numel():
                kind = f"{type(tensors[k]).__name__} on {tensors[k].device}"
                raise TypeError(f"{kind}: its numbers are in no memory. Use engine='eager'.")
        frame.numbers[SLOTS:] = slots
        self.run(frame)

    def open(self, steps: int, batch: int) -> Frame:
        """A frame for a call. Calls at the same time, from several threads, each get their own."""
        try:
            frame = self._spare.pop()
        except IndexError:
            frame = Frame(self)
        threads = torch.get_num_threads()
        if frame.steps != steps or frame.batch != batch or frame.threads < threads:
            frame.measure(steps, batch, threads)
        frame.place()
        return frame

    def run(self, frame: Frame) -> None:
        """Run with all pointers in place. The frame is another call's afterwards."""
        most = min(torch.get_num_threads(), frame.threads)  # another thread may have set it since
        steps = frame.steps
        circumstances = (steps, frame.batch, most, os.getpid())
        if circumstances != frame.circumstances:
            omp = _openmp() if os.getpid() == _HOME else None
            loopers, apart = self._threads(steps, frame.batch, most)
            outside = self.program.outside.work * steps * frame.batch
            alone = loopers == 1 and outside >= WORTH_WAKING
            threads = most if alone else loopers
            omp = ctypes.addressof(omp) if omp else 0
            frame.numbers[1:TURN] = [omp, steps, frame.batch, threads, loopers, apart or alone]
            frame.circumstances = circumstances
        frame.numbers[TURN] ^= 1
        self._run(frame.pointers, frame.numbers)
        frame.leave()
        self._spare.append(frame)

    def _threads(self, steps: int, batch: int, most: int) -> tuple[int, bool]:
        """How many threads loop, and whether each has sequences of its own rather than units."""
        program, rows = self.program, batch // most
        if rows and program.products <= OWN_SEQUENCES * rows * rows:
            work = (program.products or 8 * program.width) * batch * steps
            return (most if work >= WORTH_THREADS else 1), True
        most = min(most, program.tiles if program.aligned else batch * program.tiles)
        work = program.products * batch if program.products else program.width * batch * steps
        return (max(1, most) if work >= WORTH_A_MEETING else 1), False
