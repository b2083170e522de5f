"""Room for results."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

LARGE = 1 << 22  # bytes
HUGE_PAGES = 14  # MADV_HUGEPAGE, the same on all Linux
CPU = torch.device("cpu")

Shape = tuple[int, ...]


def maker(shape: Shape, dtype: torch.dtype) -> tuple[Callable[..., Tensor], Shape]:
    """What to call, on which shape: `torch.empty`, or `spacious` if much room is needed."""
    known = all(isinstance(n, int) for n in shape)  # torch.compile has sizes that are no numbers
    large = known and math.prod(shape) * dtype.itemsize >= LARGE
    return (spacious if large else torch.empty), shape


def room(shape: Shape, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`torch.empty`, of large pages where much is needed of a CPU's memory."""
    make, shape = maker(shape, dtype) if device.type == "cpu" else (torch.empty, shape)
    return make(shape, dtype=dtype, device=device)


def plain(tensor: Tensor) -> Tensor:
    """The same numbers, one after the other in memory, as they are."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    if tensor.is_contiguous():
        return tensor
    return room(tensor.shape, tensor.dtype, tensor.device).copy_(tensor)


def spacious(shape: Shape, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`torch.empty` of large pages, of which fewer have to be mapped in.

    That takes some 2 µs for each page of 4 kB, in all about a tenth of the processor time of a
    minGRU trained at (512, 32, 256).
    """
    made = torch.empty(shape, dtype=dtype, device=device)
    if type(made) is Tensor and (advise := _madvise()) is not None:
        start = -(-made.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (made.data_ptr() + made.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        advise(start, max(end - start, 0), HUGE_PAGES)  # a kernel that knows none says no
    return made


@lru_cache(maxsize=1)
def _madvise() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        found = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found
