"""Products of whole matrices, several in one call: what runs before a loop over time and after it.

torch has them too, but each is a call of its own, and takes longer (docs/results.md); and the last
bits of ours do not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
from array import array
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.cpu.compile import load
from metarnn.engines.cpu.emit import EPILOGUE, HERE, PRELUDE
from metarnn.engines.cpu.kernel import ALIGNMENT, WORTH_THREADS, openmp, products, typed
from metarnn.engines.cpu.memory import empty

LONGEST = 1024  # rows of B that are packed at once where that is all of them; if there are more,
BLOCK = 512  # so many at a time: C is read and written again for each block
WIDEST = 64  # columns of a tile, with the widest vectors
CHUNK = 96  # as in dense.c


class Dense:
    """Products to be computed together, by `run`, in the order in which they were asked for.

    >>> dense = Dense(torch.float32)
    >>> y = dense.linear(torch.ones(2, 3), torch.ones(4, 3), None)
    >>> dense.run()
    >>> y
    tensor([[3., 3., 3., 3.],
            [3., 3., 3., 3.]])
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.numbers: list[int] = []  # of each product those of the struct in dense.c
        self.held: list[Tensor] = []  # what the numbers point to
        self.count = self.work = self.packed = self.longest = 0

    def linear(self, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        """x [..., K], w [N, K] (rows may lie apart), bias [N] -> x wᵀ + bias, [..., N]."""
        N, K = w.shape
        y = empty(*x.shape[:-1], N, dtype=self.dtype)
        start = 0 if bias is None else bias.data_ptr()
        self._add(x, w, start, y, y.numel() // N, N, K, (K, 1, w.stride(0), 0, N, 0))
        return y

    def pull(self, d: Tensor, w: Tensor, dx: Tensor, add: bool = False) -> None:
        """d [..., N], w [N, K] -> dx [..., K], d w."""
        N, K = w.shape
        self._add(d, w, 0, dx, d.numel() // N, K, N, (N, 1, w.stride(0), 1, K, add))

    def outer(self, d: Tensor, x: Tensor, dw: Tensor, add: bool = False) -> None:
        """d [..., N], x [..., K] -> dw [N, K] (rows may lie apart), dᵀ x. x may have more rows."""
        N, K = dw.shape
        self._add(d, x, 0, dw, N, K, d.numel() // N, (1, N, K, 1, dw.stride(0), add))

    def total(self, d: Tensor, sums: Tensor, add: bool = False) -> None:
        """d [..., N] -> sums [N] over all else."""
        N, rows = len(sums), d.numel() // len(sums)
        pointers = (0, d.data_ptr(), 0, sums.data_ptr())
        self.numbers += (*pointers, 1, N, rows, 0, 0, N, 1, N, add, 0)
        self.held += (d, sums)
        self.count += 1

    def _add(
        self,
        a: Tensor,
        b: Tensor,
        bias: int,
        c: Tensor,
        M: int,
        N: int,
        K: int,
        layout: tuple[int, ...],
    ) -> None:
        block = (K or 1) if K <= LONGEST else BLOCK
        pointers = (a.data_ptr(), b.data_ptr(), bias, c.data_ptr())
        self.numbers += (*pointers, M, N, K, *layout, block)
        self.held += (a, b, c)
        self.count += 1
        self.work += M * N * K
        self.longest = max(self.longest, block)
        self.packed = max(self.packed, (block + 1) * (-(-N // WIDEST) * WIDEST))

    def run(self) -> None:
        """Compute all that was asked for."""
        dtype = self.dtype
        threads = torch.get_num_threads() if self.work >= WORTH_THREADS else 1
        apart = CHUNK * self.longest  # numbers of a thread's own
        library, table = _library(dtype)
        room = _room(dtype, self.packed + threads * apart)
        packed = -(-room.data_ptr() // ALIGNMENT) * ALIGNMENT
        gathered = packed + self.packed * dtype.itemsize
        # As in epilogue.c, the number of products in place of steps.
        call = (table, openmp(), self.count, 0, threads, 0, 0, packed, gathered, apart)
        each, arguments = array("q", self.numbers), array("q", call)
        library(each.buffer_info()[0], arguments.buffer_info()[0])
        _spare[dtype].append(room)


_spare: dict[torch.dtype, list[Tensor]] = {torch.float32: [], torch.float64: []}


def _room(dtype: torch.dtype, numbers: int) -> Tensor:
    """Memory of a former call, or more. Calls at the same time each have their own."""
    try:
        room = _spare[dtype].pop()
    except IndexError:
        room = torch.empty(0, dtype=dtype)
    numbers += ALIGNMENT // dtype.itemsize
    return room if len(room) >= numbers else torch.empty(numbers, dtype=dtype)


@lru_cache(maxsize=2)
def _library(dtype: torch.dtype) -> tuple[Any, int]:
    """The program, and the address of the products that it shares with all others."""
    source = "\n".join([PRELUDE, (HERE / "dense.c").read_text(), EPILOGUE])
    run = load(typed(source, dtype)).run
    run.restype = None
    run.argtypes = [ctypes.c_void_p] * 2
    return run, products(dtype)
