"""Both directions of a layer at the same time, each on its half of a GPU."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import Cell, State
from metarnn.engines.plan import plan_cell
from metarnn.engines.triton.fused import loop
from metarnn.engines.triton.kernel import Kernel, processors, weight_size
from metarnn.engines.triton.tiling import tile

_here = threading.local()


def share() -> int:
    """How many loops share the GPU, as this thread has it."""
    return getattr(_here, "share", 1)


@lru_cache(maxsize=256)
def worthwhile(cell: Cell, batch: int, dot: torch.dtype, available: int) -> bool:
    """Whether two loops, each on half of the processors, end sooner than one after the other."""
    made = loop(plan_cell(cell, (), (), ()))
    size = weight_size(dot)
    for kernel in (made.train, made.reverse):
        # A scan keeps the memory busy as it is, and programs that never meet fill any GPU.
        if not isinstance(kernel, Kernel) or not kernel.program.groups or available < 2:
            return False
        try:
            half = tile(kernel.program, batch, size, available // 2)
        except ValueError:
            return False
        if half.cost > 1.8 * tile(kernel.program, batch, size, available).cost:
            return False
    return True


class Halves:
    """Runs one loop on the current stream and another on a second one, from where it is entered.

    Autograd runs each backward pass on the stream of its forward pass, so those share the GPU too.
    """

    def __init__(self, x: Tensor) -> None:
        self.device = x.device
        self.side = _side(x.device)

    def __enter__(self) -> Halves:
        _here.share = 2
        self.main = torch.cuda.current_stream(self.device)
        self.fork = self.main.record_event()
        return self

    @contextmanager
    def aside(self, *read: Any) -> Generator[None]:
        """On the second stream, which reads these tensors of the first one's."""
        self.side.wait_event(self.fork)
        for tensor in read:
            if isinstance(tensor, Tensor):
                tensor.record_stream(self.side)  # type: ignore[arg-type]
        with torch.cuda.stream(self.side):
            yield

    def back(self, output: Tensor, final: State) -> tuple[Tensor, State]:
        """What the second stream has made, for use on the first after the block."""
        for tensor in (output, *final):
            tensor.record_stream(self.main)  # type: ignore[arg-type]
        return output, final

    def __exit__(self, *error: object) -> None:
        _here.share = 1
        self.main.wait_stream(self.side)


@lru_cache(maxsize=64)
def _side(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def halves(cell: Cell, x: Tensor) -> Halves | None:
    """Halves for two loops over x, if that is faster than one after the other."""
    if not x.is_cuda:
        return None
    narrow = torch.is_autocast_enabled("cuda")
    dot = torch.get_autocast_dtype("cuda") if narrow else x.dtype
    if not worthwhile(cell, x.shape[1], dot, processors(x.device)):
        return None
    return Halves(x)
