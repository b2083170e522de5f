"""Weights in the order in which programs read them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from metarnn.engines.triton.program import Block, Group, Program, power
from metarnn.engines.triton.tiling import Tiling


class Pack:
    """The weights of products that are computed as one: [programs, units, blocks, inner].

    Of a product that each program computes whole, as if there were one program. Of partial sums
    [programs, all units, blocks, units of the argument, tiles of the argument].
    """

    def __init__(self, group: Group, tiling: Tiling) -> None:
        layout = _partial if tiling.chunks[group.number].partial else _shared
        self.shape, self._runs = layout(group, tiling)
        self._whole = sum(run.count for run in self._runs) == torch.Size(self.shape).numel()

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
    """Blocks that are rows of one product, one after the other: copied, and cast, in one go.

    `steps` says for each dimension of `size` how many rows and columns of the weight it goes on,
    `first` where in them it begins; `target` where in what is packed, and the strides there.
    """

    def __init__(
        self,
        block: Block,
        size: tuple[int, ...],
        steps: tuple[tuple[int, int], ...],
        target: tuple[int, tuple[int, ...]],
        first: int = 0,
    ) -> None:
        self.map, self.transposed, self.columns = block.map, block.transposed, block.columns[0]
        self.size, self.steps, self.start = size, steps, (block.start, first)
        self.offset, self.strides = target
        self.count = torch.Size(size).numel()

    def copy(self, weight: Tensor, packed: Tensor) -> None:
        weight = weight.contiguous()
        width = weight.shape[1]
        row, step = (1, width) if self.transposed else (width, 1)
        # A weight may be a part of a larger tensor.
        offset = weight.storage_offset() + self.columns
        offset += self.start[0] * row + self.start[1] * step
        strides = [a * row + b * step for a, b in self.steps]
        target = packed.as_strided(self.size, self.strides, self.offset)
        target.copy_(weight.as_strided(self.size, strides, offset))


def direct(program: Program, tiling: Tiling, same: bool) -> list[bool]:
    """Of which products the weights are read where a layer has them, and need no packing.

    Those that are held, since they are read once; others if they are of the `same` type as products
    are computed in, and lie there as they would be packed.
    """
    chunks = tiling.chunks
    return [chunks[g.number].held or (same and _in_order(g, tiling)) for g in program.groups]


def _in_order(group: Group, tiling: Tiling) -> bool:
    """Whether weights lie column after column, without padding."""
    chunks = tiling.chunks[group.number]
    if chunks.partial or any(b.transposed or b.offset is not None for b in group.blocks):
        return False
    columns = tiling.columns(group) * (1 if group.whole else tiling.programs)
    return columns == group.width * len(group.blocks) and chunks.inner == group.inner


Layout = tuple[tuple[int, ...], list[_Run]]  # of what is packed: its shape, and where it comes from


def _shared(group: Group, tiling: Tiling) -> Layout:
    inner, blocks = tiling.chunks[group.number].inner, group.padded
    programs = 1 if group.whole else tiling.programs
    runs = []
    for begin, end in group.runs:
        block = group.blocks[begin]
        read = group.inner if block.offset is None else block.columns[1] - block.columns[0]
        target = begin * inner + (block.offset or 0), (blocks * inner, inner, 1)
        size = group.width, end - begin, read
        runs.append(_Run(block, size, ((1, 0), (group.width, 0), (0, 1)), target))
    return (programs, tiling.columns(group) // blocks, blocks, inner), runs


def _partial(group: Group, tiling: Tiling) -> Layout:
    """Of each tile of the argument a program has `own` units, the last one perhaps fewer."""
    blocks, tiles, source = group.padded, power(group.tiles), group.source
    own, rows = tiling.units[source], tiling.chunks[group.number].inner // group.padded
    strides = (rows * blocks * own * tiles, blocks * own * tiles, own * tiles, tiles, 1)
    steps = ((0, own), (1, 0), (group.width, 0), (0, 1), (0, source))
    full, rest = divmod(source, own)
    runs = []
    for begin, end in group.runs:
        for first, programs, units in ((0, full, own), (full, 1, rest)):
            size = programs, group.width, end - begin, units, group.tiles
            target = first * strides[0] + begin * strides[2], strides
            if units and programs:
                runs.append(_Run(group.blocks[begin], size, steps, target, first * own))
    return (tiling.programs, rows, blocks, own, tiles), runs
