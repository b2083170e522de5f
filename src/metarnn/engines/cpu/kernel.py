"""A compiled program, ready to be called on tensors."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from metarnn.engines.cpu.compile import load
from metarnn.engines.cpu.program import LINALG, Program
from metarnn.engines.cpu.threads import openmp, split_work
from metarnn.engines.cpu.workspace import ALIGNMENT, EMPTY, POOL, ArraySize


def _specialised(source: str, dtype: torch.dtype) -> str:
    double = dtype == torch.float64
    real = f"#define REAL {'double' if double else 'float'}\n#define IS_DOUBLE {int(double)}\n"
    return real + source


@cache
def _linalg(dtype: torch.dtype) -> int:
    """The address of the table of matrix products that all programs share."""
    library = load(_specialised(LINALG, dtype))
    return ctypes.addressof(ctypes.c_char.in_dll(library, "functions"))


class Arguments(ctypes.Structure):
    """What a program takes beside its arrays: `call_arguments` of runtime/launch.c."""

    _fields_: ClassVar = [
        ("linalg", ctypes.c_void_p),
        ("openmp", ctypes.c_void_p),
        ("steps", ctypes.c_long),
        ("batch", ctypes.c_long),
        ("threads", ctypes.c_long),
        ("loop_threads", ctypes.c_long),
        ("by_sequence", ctypes.c_long),
        ("reverse_tiles", ctypes.c_long),
    ]


@cache
def _arguments(states: int) -> type[Arguments]:
    """`Arguments` with the slots of so many states."""
    return type("Arguments", (Arguments,), {"_fields_": [("slots", ctypes.c_ssize_t * states)]})


class CallFrame:
    """The arguments of one call, and its workspace. One call at a time uses a frame."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.steps, self.batch, self.threads = kernel, -1, -1, 0
        self.pointers = (ctypes.c_void_p * len(kernel.program.arrays))()
        self.arguments = _arguments(kernel.program.states)(linalg=kernel.linalg)
        self.slots, self.reference = self.arguments.slots, ctypes.byref(self.arguments)
        self.slots_noted: list[int] = []
        self.conditions: tuple[int, ...] = ()  # steps, batch, threads at hand, process
        self.block, self.address = EMPTY, 0

    def resize(self, steps: int, batch: int, threads: int) -> None:
        """Lay out the workspace for that many steps, sequences and threads."""
        self.steps, self.batch, self.threads = steps, batch, threads
        self.offsets, self.size = [], ALIGNMENT
        for place, size in self.kernel.workspace.items():
            self.offsets.append((place, self.size - ALIGNMENT))
            bytes_ = size.elements(steps, batch, threads) * self.kernel.dtype.itemsize
            self.size += -(-bytes_ // ALIGNMENT) * ALIGNMENT
        self.address = -1

    def acquire(self) -> None:
        """Take a block from the pool, and point the arrays of the workspace into it."""
        self.block = POOL.acquire(self.size)
        if self.block.address != self.address:
            self.address = self.block.address
            first = -(-self.address // ALIGNMENT) * ALIGNMENT
            for place, offset in self.offsets:
                self.pointers[place] = first + offset

    def share_work(self, conditions: tuple[int, ...]) -> None:
        """Note how threads share the work of this call, and of later ones like it."""
        self.conditions, call = conditions, self.arguments
        call.steps, call.batch, available, _ = conditions
        call.openmp = openmp()
        split = split_work(self.kernel.program, call.steps, call.batch, available)
        call.threads, call.loop_threads, call.by_sequence = split


class Kernel:
    """A program compiled for one dtype.

    Args:
        private: Arrays that no one else reads, which therefore lie in the workspace: elements of
            each (a sequence, a step of a sequence).

    `places` says where the pointer to each array that a call is given belongs, by kind and name.
    """

    def __init__(
        self,
        program: Program,
        dtype: torch.dtype,
        private: Mapping[tuple[str, str], tuple[int, int]] = MappingProxyType({}),
    ) -> None:
        self.program, self.dtype = program, dtype
        with ThreadPoolExecutor(1) as beside:  # the first program of a machine compiles both
            linalg = beside.submit(_linalg, dtype)
            library = load(_specialised(program.source, dtype))
            self.linalg = linalg.result()
        self._run = library.run
        self._run.restype = None
        self._run.argtypes = [ctypes.c_void_p] * 2
        lanes = library.vector_length()
        sizes = {key: ArraySize(0, 0, *size) for key, size in private.items()}
        sizes |= {key: ArraySize(size.elements(lanes)) for key, size in program.packed.items()}
        sizes |= program.workspace
        places = {array: place for place, array in enumerate(program.arrays)}
        self.workspace = {place: sizes[key] for key, place in places.items() if key in sizes}
        self.places = {key: place for key, place in places.items() if key not in sizes}
        self._frames: list[CallFrame] = []  # that no call is using

    def __call__(
        self,
        places: Sequence[tuple[int, int]],
        tensors: Sequence[Tensor],
        slots: list[int],
        steps: int,
        batch: int,
    ) -> None:
        """Run over all steps.

        Args:
            places: (place of a pointer, which of the tensors it points to) for each.
            tensors: Contiguous, of the kernel's dtype.
            slots: Of each state, how many steps its array holds: see `Program`.
        """
        frame = self.open(steps, batch)
        pointers = frame.pointers
        for place, k in places:
            pointers[place] = address = tensors[k].data_ptr()
            if not address and tensors[k].numel():
                kind = f"{type(tensors[k]).__name__} on {tensors[k].device}"
                raise TypeError(f"{kind}: its values are in no memory. Use engine='eager'.")
        if frame.slots_noted is not slots:
            frame.slots[:] = frame.slots_noted = slots
        self.run(frame)

    def open(self, steps: int, batch: int) -> CallFrame:
        """Return a frame for a call. Calls at the same time, from several threads, each get one."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = CallFrame(self)
        threads = torch.get_num_threads()
        if frame.steps != steps or frame.batch != batch or frame.threads < threads:
            frame.resize(steps, batch, threads)
        frame.acquire()
        return frame

    def run(self, frame: CallFrame) -> None:
        """Run with all pointers in place. The frame is another call's afterwards."""
        # Another thread may have set the number of threads since the frame was opened.
        available = min(torch.get_num_threads(), frame.threads)
        conditions = (frame.steps, frame.batch, available, os.getpid())
        if conditions != frame.conditions:
            frame.share_work(conditions)
        frame.arguments.reverse_tiles ^= 1
        self._run(frame.pointers, frame.reference)
        POOL.release(frame.block)
        frame.block = EMPTY
        self._frames.append(frame)
