"""What a generated kernel is, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from metarnn.engines.plan import Key

TENSOR_CORE_MIN = 16  # a tensor core multiplies 16 rows, and sums over 16 elements, at least
# Slots of a mailbox. In step s + 4 a program writes where it did in s: it has then polled what all
# others published when they had completed step s + 1, and so had read what there was of s.
MAILBOX_DEPTH = 4


@dataclass(frozen=True)
class WeightBlock:
    """The rows [start, start + n) of a product, n the width of its segment: a gate."""

    product: int
    start: int
    map: str
    column: int  # the first of the weight's columns that take part
    transposed: bool
    columns: int  # of the weight, in all
    reads: int  # how many elements of the argument's rows
    offset: int = 0  # and from which on

    @property
    def strides(self) -> tuple[int, int]:
        """From a row of the product's weight to the next, and from a column to the next."""
        return (1, self.columns) if self.transposed else (self.columns, 1)


@dataclass(frozen=True)
class ProductGroup:
    """Products of one segment with the same argument, computed as one.

    Attributes:
        name: What the kernel's variables for it end with.
        width: Of the segment.
        inner: How many elements are summed over.
        replicated: Whether each program computes all of it.
        in_registers: Whether its argument is in registers.
        fused_with: The group of the same argument together with which it is computed.
        partial_tiles: In how many tiles of units an earlier segment has its argument, or 0. Each
            program may then multiply the part that it has, for all, instead of reading what all
            have.
        published_width: The width of the rows of units that make up the argument, if these may be
            published; else 0.
        reads_all_units: Whether it reads all units of such a row, and so values of every program.
    """

    number: int
    name: str
    width: int
    inner: int
    blocks: tuple[WeightBlock, ...]
    replicated: bool = False
    in_registers: bool = False
    fused_with: int | None = None
    partial_tiles: int = 0
    published_width: int = 0
    reads_all_units: bool = False

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
    def padded_blocks(self) -> int:
        """The number of blocks as a power of two: results are split in halves."""
        return next_power_of_2(len(self.blocks))

    def constant(self, role: str) -> str:
        """The name of one of its parameters of the kernel."""
        return f"{role}_{self.name.upper()}"

    @property
    def tile_width(self) -> int:
        """The width of the rows that are the tiles of its argument."""
        return self.inner // self.partial_tiles


class StateArray(NamedTuple):
    width: int
    in_memory: bool  # whether it has an array of all or of the last three steps
    exact: bool  # whether more than products read it there, so that it must not be rounded


@dataclass(frozen=True)
class Program:
    """A kernel's source and what it takes.

    Attributes:
        name: Of the kernel function.
        arrays: The pointers that it takes, as (kind, name): inputs and outputs [T, B, n], contexts
            [B, n], vectors [n], weights, biases, initial and final states [B, n], states
            [slots, B, n] (the state before step s is in slot s % slots), sums over time [B, n],
            scratch [2, B, n], packed weights, partial sums, mailboxes [MAILBOX_DEPTH, B, n].
        widths: Of all segments over units.
        outputs: The width of each output that has an array.
        aliases: Outputs that are the same as another one.
        sums: The width of each output that is summed over time.
        scratch: Width of each array, and whether only products read it.
        mailboxes: The width of each.
        exchanges: How often in a step programs wait for one another.
        synchronizes: Whether programs wait for one another at all.
        rows: Whether there are segments over rows.
    """

    name: str
    source: str
    arrays: tuple[Key, ...]
    widths: tuple[int, ...]
    outputs: Mapping[str, int]
    aliases: Mapping[str, str]
    sums: Mapping[str, int]
    states: tuple[StateArray, ...]
    groups: tuple[ProductGroup, ...] = ()
    scratch: Mapping[str, tuple[int, bool]] = field(default_factory=dict[str, tuple[int, bool]])
    mailboxes: Mapping[str, int] = field(default_factory=dict[str, int])
    exchanges: int = 0
    synchronizes: bool = False
    rows: bool = False


def next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def padded(n: int) -> int:
    """The length of a row with the padding that Triton and tensor cores ask for."""
    return max(TENSOR_CORE_MIN, next_power_of_2(n))
