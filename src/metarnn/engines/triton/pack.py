"""Weights in the order in which programs read them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from metarnn.engines.triton.program import Group
from metarnn.engines.triton.tiling import Tiling


class Pack:
    """The weights of products that are computed as one: [programs, units, blocks, inner].

    Of a product that each program computes whole, as if there were one program.
    """

    def __init__(self, group: Group, tiling: Tiling) -> None:
        units, inner = tiling.columns(group) // group.padded, tiling.chunks[group.number].inner
        self.shape = (1 if group.whole else tiling.programs, units, group.padded, inner)
        filled = (group.width, len(group.blocks), group.inner)
        self._whole = filled == (self.shape[0] * units, group.padded, inner) and all(
            block.offset is None for block in group.blocks
        )
        self._runs = [_Run(group, begin, end, self.shape) for begin, end in group.runs]

    def __call__(self, weights: Mapping[str, Tensor], dot: torch.dtype, split: bool) -> Tensor:
        """Weights of type `dot`; with `split` two, whose sum they are: see `prelude.dot`."""
        device = weights[self._runs[0].map].device
        make = torch.empty if self._whole else torch.zeros
        packed = make(self.shape, dtype=dot, device=device)
        for run in self._runs:
            run.copy(weights[run.map], packed)
        if split:
            high = (packed.view(torch.int32) & -8192).view(torch.float32)
            return torch.stack([high, packed - high])
        return packed


class _Run:
    """Blocks that are rows of one product, one after the other: copied, and cast, in one go."""

    def __init__(self, group: Group, begin: int, end: int, shape: tuple[int, ...]) -> None:
        block, (_, _, blocks, inner) = group.blocks[begin], shape
        self.map, self.columns, self.start = block.map, block.columns, block.start
        self.transposed = block.transposed
        self.rows = group.width, end - begin
        self.strides = blocks * inner, inner, 1  # of rows of units, of blocks, of numbers
        self.offset = begin * inner + (block.offset or 0)

    def copy(self, weight: Tensor, packed: Tensor) -> None:
        weight = weight.contiguous()
        height, width = weight.shape
        first, last = self.columns
        row, step, inner = (1, width, height) if self.transposed else (width, 1, last - first)
        # A weight may be a part of a larger tensor.
        offset = weight.storage_offset() + first + self.start * row
        size, strides = (*self.rows, inner), (row, self.rows[0] * row, step)
        target = packed.as_strided(size, self.strides, self.offset)
        target.copy_(weight.as_strided(size, strides, offset))
