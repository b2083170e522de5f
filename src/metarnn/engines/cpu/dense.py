"""Products of whole matrices, several in one call: what runs before a loop over time and after it.

torch has them too, but each is a call of its own, and takes longer (docs/results.md); and the last
bits of ours do not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from metarnn.engines.cpu.compile import load
from metarnn.engines.cpu.emit import EPILOGUE, HERE, PRELUDE
from metarnn.engines.cpu.kernel import ALIGNMENT, WORTH_THREADS, openmp, products, typed

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
        self.held: list[Tensor | None] = []  # what the numbers point to
        self.count = self.work = self.packed = self.longest = 0

    def linear(self, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        """x [..., K], w [N, K] (rows may lie apart), bias [N] -> x wᵀ + bias, [..., N]."""
        N, K = w.shape
        y = torch.empty(*x.shape[:-1], N, dtype=self.dtype)
        self._add(x, w, bias, y, (y.numel() // N, N, K), (K, 1), (w.stride(0), 0), N, False)
        return y

    def pull(self, d: Tensor, w: Tensor, dx: Tensor, add: bool = False) -> None:
        """d [..., N], w [N, K] -> dx [..., K], d w."""
        N, K = w.shape
        self._add(d, w, None, dx, (d.numel() // N, K, N), (N, 1), (w.stride(0), 1), K, add)

    def outer(self, d: Tensor, x: Tensor, dw: Tensor, add: bool = False) -> None:
        """d [..., N], x [..., K] -> dw [N, K] (rows may lie apart), dᵀ x. x may have more rows."""
        N, K = dw.shape
        self._add(d, x, None, dw, (N, K, d.numel() // N), (1, N), (K, 1), dw.stride(0), add)

    def total(self, d: Tensor, sums: Tensor, add: bool = False) -> None:
        """d [..., N] -> sums [N] over all else."""
        N = len(sums)
        self._add(None, d, None, sums, (1, N, d.numel() // N), (0, 0), (N, 1), N, add)

    def _add(
        self,
        a: Tensor | None,
        b: Tensor,
        bias: Tensor | None,
        c: Tensor,
        sizes: tuple[int, int, int],
        strides_a: tuple[int, int],
        layout_b: tuple[int, int],
        ldc: int,
        add: bool,
    ) -> None:
        M, N, K = sizes
        block = max(1, K) if K <= LONGEST else BLOCK
        self.numbers += [
            0 if a is None else a.data_ptr(),
            b.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            c.data_ptr(),
            *sizes,
            *strides_a,
            *layout_b,
            ldc,
            add,
            block,
        ]
        self.held += [a, b, bias, c]
        self.count += 1
        self.work += M * N * K
        if a is not None:
            self.packed = max(self.packed, (block + 1) * (-(-N // WIDEST) * WIDEST))
            self.longest = max(self.longest, block)

    def run(self) -> None:
        """Compute all that was asked for."""
        threads = torch.get_num_threads() if self.work >= WORTH_THREADS else 1
        apart = CHUNK * self.longest  # numbers of a thread's own
        library, size = _library(self.dtype), self.dtype.itemsize
        room = _room(self.dtype, self.packed + threads * apart)
        packed = -(-room.data_ptr() // ALIGNMENT) * ALIGNMENT
        numbers = (ctypes.c_ssize_t * len(self.numbers))(*self.numbers)
        arguments = [products(self.dtype), openmp(), self.count, 0, threads, 0, 0]
        arguments += [packed, packed + self.packed * size, apart]
        library.run(numbers, (ctypes.c_ssize_t * len(arguments))(*arguments))
        _spare[self.dtype].append(room)


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
def _library(dtype: torch.dtype) -> Any:
    source = "\n".join([PRELUDE, (HERE / "dense.c").read_text(), EPILOGUE])
    library = load(typed(source, dtype))
    library.run.restype = None
    return library
