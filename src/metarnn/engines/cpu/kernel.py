"""A compiled program, ready to be called on tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.cpu.compile import load
from metarnn.engines.cpu.emit import PRODUCTS, Program

# Multiply-adds of one step from which a second thread pays for the barrier between steps.
WORTH_A_THREAD = 10_000
ALIGNMENT = 64


def _typed(source: str, dtype: torch.dtype) -> str:
    double = dtype == torch.float64
    return (
        f"#define REAL {'double' if double else 'float'}\n#define IS_DOUBLE {int(double)}\n{source}"
    )


@lru_cache(maxsize=2)
def _products(dtype: torch.dtype) -> tuple[Any, Any]:
    """The matrix products that all programs share: functions by number of vectors, and packing."""
    library = load(_typed(PRODUCTS, dtype))
    by_vectors = [
        ctypes.cast(getattr(library, f"multiply{n}"), ctypes.c_void_p) for n in range(1, 5)
    ]
    table = (ctypes.c_void_p * 5)(None, *(function.value for function in by_vectors))
    return table, ctypes.cast(library.pack, ctypes.c_void_p)


class Kernel:
    """A program compiled for one number type."""

    def __init__(self, program: Program, dtype: torch.dtype) -> None:
        self.program, self.dtype = program, dtype
        library = load(_typed(program.source, dtype))
        self._run = library.run
        self._run.restype = None
        self._run.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 3
        self._multiply, self._pack = _products(dtype)
        lanes = library.vector_length()
        # Scratch and packed weights come out of one block: (numbers a sequence, numbers at all).
        self._room: dict[tuple[str, str], tuple[int, int]] = {}
        for kind, name in program.arrays:
            if kind == "scratch":
                self._room[kind, name] = (program.scratch[name], 0)
            elif kind == "packed":
                width, vectors, per_tile = program.packed[name]
                self._room[kind, name] = (0, -(-width // (lanes * vectors)) * per_tile * lanes)
        self._pointers = ctypes.c_void_p * len(program.arrays)
        self._slots = ctypes.c_long * max(program.states, 1)

    def __call__(
        self, arrays: Mapping[tuple[str, str], Tensor], slots: list[int], steps: int, batch: int
    ) -> None:
        """Run over all steps. Arrays are contiguous, of the kernel's type; slots see `Program`."""
        line = ALIGNMENT // self.dtype.itemsize
        sizes = [-(-(b * batch + n) // line) * line for b, n in self._room.values()]
        block = torch.empty(sum(sizes) + line, dtype=self.dtype)
        place = -(-block.data_ptr() // ALIGNMENT) * ALIGNMENT
        own = {}
        for key, size in zip(self._room, sizes, strict=True):
            own[key] = place
            place += size * self.dtype.itemsize
        pointers = [
            own[key] if key in own else arrays[key].data_ptr() for key in self.program.arrays
        ]
        self._run(
            self._pointers(*pointers),
            self._slots(*slots),
            self._multiply,
            self._pack,
            steps,
            batch,
            self._threads(steps, batch),
        )

    def _threads(self, steps: int, batch: int) -> int:
        program = self.program
        most = min(
            torch.get_num_threads(), program.shares if program.aligned else batch * program.shares
        )
        work = program.products * batch if program.products else program.width * batch * steps
        return max(1, most) if work >= WORTH_A_THREAD else 1
