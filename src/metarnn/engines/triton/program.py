"""What a generated kernel is, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from metarnn.engines.plan import Key

SHORTEST = 16  # the fewest numbers that tensor cores sum over
# Of what is told: at step s + 4 a program writes where it did at s, and has heard of all that they
# told it their states before step s + 2 was over; then they have read what there was at s.
SLOTS = 4


@dataclass(frozen=True)
class Block:
    """Rows [start, start + n) of a product, n the width of its segment's rows."""

    product: int
    start: int
    map: str
    column: int  # the first of the weight's that it takes part in
    transposed: bool
    across: int  # how many columns the weight has
    reads: int  # how many numbers of its argument's rows
    offset: int = 0  # and from which on

    @property
    def strides(self) -> tuple[int, int]:
        """How far it is from a row of the product's weight to the next, and from a column."""
        return (1, self.across) if self.transposed else (self.across, 1)


@dataclass(frozen=True)
class Group:
    """Products of one segment with the same argument, computed as one."""

    number: int
    width: int  # of the segment
    inner: int  # how many numbers are summed over
    blocks: tuple[Block, ...]
    whole: bool = False  # whether each program computes all of it
    at_hand: bool = False  # whether its argument is in registers
    beside: int | None = None  # the group that it is computed together with, of the same argument
    # In how many tiles of units an earlier segment has its argument, if at all: then each program
    # may multiply what it has itself, for all, instead of reading what all have.
    tiles: int = 0
    # The width of the rows of units that its argument is made of, if programs may tell one another
    # these; else 0.
    told: int = 0
    of_all: bool = False  # whether it reads all units of such a row, and so of every program

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """(first, end) of blocks that are rows of one product, one after the other."""
        ends = [
            i
            for i, (a, b) in enumerate(pairwise(self.blocks), 1)
            if (b.product, b.start) != (a.product, a.start + self.width)
        ]
        return tuple(pairwise([0, *ends, len(self.blocks)]))

    @cached_property
    def padded(self) -> int:
        """The number of blocks as a power of two: results are split in halves."""
        return power(len(self.blocks))

    @property
    def source(self) -> int:
        """The width of its argument's tiles."""
        return self.inner // self.tiles


@dataclass(frozen=True)
class Program:
    """A kernel's source and what it takes.

    `arrays` lists pointers as (kind, name): inputs and outputs [T, B, n], contexts [B, n],
    vectors [n], biases, initial states [B, n], states
    [slots, B, n] (the state before step s is in slot s % slots), final states [B, n], sums over
    time [B, n], scratch [2, B, n], packed weights, partial sums, mail [SLOTS, B, n].
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
    mail: dict[str, int] = field(default_factory=dict)  # widths of what programs may tell
    barriers: int = 0  # of a step
    meets: bool = False  # whether programs wait for one another at all
    rows: bool = False  # whether there are segments over rows


def power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def short(n: int) -> int:
    """The numbers of a short row, with those that make it long enough for tensor cores."""
    return max(SHORTEST, power(n))
