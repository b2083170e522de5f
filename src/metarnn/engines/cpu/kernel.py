"""A compiled program, ready to be called on tensors."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.cpu.compile import load
from metarnn.engines.cpu.emit import PRODUCTS, Program

# Multiply-adds from which a second thread pays: of one step, where threads meet at each, and of all
# steps, where they do not.
WORTH_A_MEETING = 10_000
WORTH_THREADS = 200_000
# Threads with r sequences each go their own way where a step has at most r² times as many weights.
# Else each has a part of the weights, which stays in its cache, but they meet at each step and read
# what the others have written (measured at H = 64 to 640, r = 1 to 16).
OWN_SEQUENCES = 32_768
ALIGNMENT = 64


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


class _Workspace:
    """Memory for a kernel's scratch and packed weights, of which one call at a time makes use."""

    def __init__(self, room: Mapping[tuple[str, str], tuple[int, int]], dtype: torch.dtype) -> None:
        self.room, self.dtype, self.batch = room, dtype, -1
        self.places: dict[tuple[str, str], int] = {}

    def place(self, batch: int) -> dict[tuple[str, str], int]:
        """The address of each array, for a batch of that size."""
        if batch != self.batch:
            line = ALIGNMENT // self.dtype.itemsize
            sizes = [-(-(each * batch + all_) // line) * line for each, all_ in self.room.values()]
            self.block = torch.empty(sum(sizes) + line, dtype=self.dtype)
            place = -(-self.block.data_ptr() // ALIGNMENT) * ALIGNMENT
            for key, size in zip(self.room, sizes, strict=True):
                self.places[key] = place
                place += size * self.dtype.itemsize
            self.batch = batch
        return self.places


class Kernel:
    """A program compiled for one number type."""

    def __init__(self, program: Program, dtype: torch.dtype) -> None:
        self.program, self.dtype = program, dtype
        library = load(_typed(program.source, dtype))
        self._run = library.run
        self._run.restype = None
        self._run.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 4
        self._products = _products(dtype)
        lanes = library.vector_length()
        # Scratch and packed weights come out of one block: (numbers a sequence, numbers at all).
        self._room: dict[tuple[str, str], tuple[int, int]] = {}
        for kind, name in program.arrays:
            if kind == "scratch":
                self._room[kind, name] = (program.scratch[name], 0)
            elif kind == "packed":
                width, vectors, per_tile = program.packed[name]
                self._room[kind, name] = (0, -(-width // (lanes * vectors)) * per_tile * lanes)
        self._spare: list[_Workspace] = []
        self._pointers = ctypes.c_void_p * len(program.arrays)
        self._slots = ctypes.c_long * max(program.states, 1)

    def __call__(
        self, arrays: Mapping[tuple[str, str], Tensor], slots: list[int], steps: int, batch: int
    ) -> None:
        """Run over all steps. Arrays are contiguous, of the kernel's type; slots see `Program`."""
        # Scratch is kept from call to call: fresh memory would have to be mapped in, page by page.
        # Calls at the same time, from several threads, each find or make their own.
        try:
            workspace = self._spare.pop()
        except IndexError:
            workspace = _Workspace(self._room, self.dtype)
        own = workspace.place(batch)
        pointers = [
            own[key] if key in own else arrays[key].data_ptr() for key in self.program.arrays
        ]
        self._run(
            self._pointers(*pointers),
            self._slots(*slots),
            self._products,
            _openmp() if os.getpid() == _HOME else None,
            steps,
            batch,
            *self._threads(steps, batch),
        )
        self._spare.append(workspace)

    def _threads(self, steps: int, batch: int) -> tuple[int, bool]:
        """How many threads, and whether each has sequences of its own rather than units."""
        program, most = self.program, torch.get_num_threads()
        rows = batch // most
        if rows and program.products <= OWN_SEQUENCES * rows * rows:
            work = (program.products or 8 * program.width) * batch * steps
            return (most if work >= WORTH_THREADS else 1), True
        most = min(most, program.tiles if program.aligned else batch * program.tiles)
        work = program.products * batch if program.products else program.width * batch * steps
        return (max(1, most) if work >= WORTH_A_MEETING else 1), False
