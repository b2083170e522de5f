"""Statements that only kernels for a GPU have: see `codegen.statements` for the others."""

from __future__ import annotations

from dataclasses import dataclass

from metarnn.engines.codegen.statements import For, Load, Operand, Statement, Value
from metarnn.engines.triton.addresses import Elements, StepUnits, Tile
from metarnn.engines.triton.program import ProductGroup
from metarnn.graph import Node


class SequentialFor(For):
    """A loop whose iterations Triton must not overlap."""


@dataclass(frozen=True)
class Broadcast(Statement):
    """target = a value with all elements of a tile."""

    target: Value
    value: Operand
    index: Tile | StepUnits


@dataclass(frozen=True)
class RawLoad(Load):
    """A load that is not yet converted to float32, so that nothing waits for it.

    Elements that are masked are 0 if `zeroed`, else anything.
    """

    zeroed: bool = True


@dataclass(frozen=True)
class RowOperation(Statement):
    """target = an operation in which the elements of a row of `width` meet."""

    target: Value
    node: Node
    argument: Operand
    width: int


@dataclass(frozen=True)
class Rearrange(Statement):
    """target = elements of a row repeated, or sums of neighbours (`fold`), read from memory, where
    the row has `width` elements."""

    target: Value
    node: Node
    address: Elements
    width: int


# Products: the variables and parameters of a group end with its name.


@dataclass(frozen=True)
class PackWeights(Statement):
    """Put the weights that a program multiplies by in the order in which it reads them.

    A layer has the rows of a map one after the other, gate after gate. A program reads those of its
    own units, in pieces of the inner dimension that lie together; in a backward pass it reads
    columns. To pack them takes it some microseconds before its loop, less than a launch. The order
    is [programs, units, blocks, inner]; for partial sums [programs, all units, blocks, own units of
    the argument, its tiles]. There is a pointer for the weights of each run of blocks.
    """

    group: ProductGroup
    weights: tuple[str, ...]
    packed: str


@dataclass(frozen=True)
class Dot(Statement):
    """acc = a row (a tile of all units) that is in registers · weights."""

    group: ProductGroup
    row: Operand
    tile: Tile
    packed: str


@dataclass(frozen=True)
class Products(Statement):
    """acc = argument · weights, for groups that are computed together; the first leads.

    The argument is read from memory, or polled from a mailbox if it is published; or, where every
    program has multiplied its part, partial sums are. Weights are resident or streamed.
    """

    groups: tuple[ProductGroup, ...]
    argument: Elements
    mailbox: Elements | None
    partial_sums: tuple[str, ...]  # an array for each group, or none
    packed: str


@dataclass(frozen=True)
class SplitBlocks(Statement):
    """even, odd = the even and the odd ones of 2 · `count` blocks of a result."""

    even: str
    odd: str
    source: str
    tile: Tile
    count: int


@dataclass(frozen=True)
class ScatterPartials(Statement):
    """Multiply the part of an argument that this program has, for all who need the sums."""

    group: ProductGroup
    tiles: tuple[Operand, ...]
    array: str


# Exchange of values.


@dataclass(frozen=True)
class Publish(Statement):
    """Store a value in a mailbox, for the products of a step."""

    address: Elements
    value: Operand
    step: str


@dataclass(frozen=True)
class ClearMailbox(Statement):
    """Mark this program's values as not there yet, in slots `first` and following."""

    address: Elements
    tile: Tile
    first: int


@dataclass(frozen=True)
class ClearPartials(Statement):
    """Mark this program's parts of all sums of a product as not there yet."""

    group: ProductGroup
    array: str


@dataclass(frozen=True)
class BarrierArrive(Statement):
    """Let other programs know that all stores so far are there, unless a constant is set."""

    unless: str = "SINGLE"


@dataclass(frozen=True)
class BarrierWait(Statement):
    """Wait until all programs of the group have arrived, unless a constant is set."""

    unless: str = "SINGLE"
