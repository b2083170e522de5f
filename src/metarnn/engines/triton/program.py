"""What a generated kernel is, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from metarnn.engines.plan import Key


@dataclass(frozen=True)
class Block:
    """Rows [start, start + n) of a product, n the width of its segment's rows."""

    product: int
    start: int
    map: str
    columns: tuple[int, int]
    transposed: bool


@dataclass(frozen=True)
class Group:
    """Products of one segment with the same argument, computed as one."""

    number: int
    width: int  # of the segment
    inner: int  # how many numbers are summed over
    blocks: tuple[Block, ...]

    @cached_property
    def together(self) -> bool:
        """Whether the blocks are one product's rows, in order."""
        first = self.blocks[0]
        starts = [(first.product, first.start + i * self.width) for i in range(len(self.blocks))]
        return starts == [(block.product, block.start) for block in self.blocks]

    @cached_property
    def padded(self) -> int:
        """The number of blocks as a power of two: results are split in halves."""
        return power(len(self.blocks))


@dataclass(frozen=True)
class Program:
    """A kernel's source and what it takes.

    `arrays` lists pointers as (kind, name): inputs and outputs [T, B, n], contexts [B, n],
    vectors [n], biases, initial states [B, n], states
    [slots, B, n] (the state before step s is in slot s % slots), final states [B, n], sums over
    time [B, n], scratch [2, B, n], packed weights.
    """

    source: str
    arrays: tuple[Key, ...]
    widths: tuple[int, ...]  # of all segments over units
    outputs: dict[str, int]
    aliases: dict[str, str]
    sums: dict[str, int]
    states: tuple[tuple[int, bool, bool], ...]  # width, whether read from memory, and exactly
    groups: tuple[Group, ...] = ()
    scratch: dict[str, tuple[int, bool]] = field(
        default_factory=dict
    )  # width, if only for products
    barriers: int = 0  # of a step
    meets: bool = False  # whether programs wait for one another at all
    rows: bool = False  # whether there are segments over rows


def power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()
