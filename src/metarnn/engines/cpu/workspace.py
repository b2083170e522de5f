"""Workspace of kernels: memory that only one call reads and writes, and that the next one reuses.

Fresh memory would have to be mapped in, page by page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from metarnn.engines.cpu.memory import CPU, allocate

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
MAX_KEPT = 1 << 26  # bytes of a block that stays from call to call


class ArraySize(NamedTuple):
    """How many elements an array of the workspace has."""

    fixed: int = 0
    per_thread: int = 0
    per_sequence: int = 0
    per_step: int = 0  # of a sequence

    def elements(self, steps: int, batch: int, threads: int) -> int:
        by_batch = batch * (self.per_sequence + steps * self.per_step)
        return self.fixed + threads * self.per_thread + by_batch


@dataclass(frozen=True)
class Block:
    """Memory for the workspace of one call at a time, of whatever kernel."""

    memory: Tensor
    address: int
    size: int  # in bytes


EMPTY = Block(torch.empty(0, dtype=torch.uint8, device=CPU), 0, 0)


class WorkspacePool:
    """Blocks that no call is using."""

    def __init__(self) -> None:
        self.free: list[Block] = []

    def acquire(self, size: int) -> Block:
        """Return a block of at least `size` bytes that no other call has."""
        try:
            block = self.free.pop()
        except IndexError:
            block = EMPTY
        if block.size < size:
            memory = allocate((size,), torch.uint8, CPU)
            block = Block(memory, memory.data_ptr(), size)
        return block

    def release(self, block: Block) -> None:
        if block.size <= MAX_KEPT:
            self.free.append(block)


POOL = WorkspacePool()
