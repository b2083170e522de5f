"""Statements of generated kernels.

A backend builds them, adds a few dataclasses of its own, and prints all at the end: see `printer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

from metarnn.graph import Node


class Axes(Flag):
    """The axes along which a value differs; along the others it is broadcast.

    An operation's result has the axes of all its arguments: SEQUENCES | UNITS is TILE.
    """

    NONE = 0
    SEQUENCES = auto()
    UNITS = auto()
    TILE = SEQUENCES | UNITS


@dataclass(frozen=True)
class Constant:
    """A literal."""

    value: float

    @property
    def axes(self) -> Axes:
        return Axes.NONE


@dataclass(frozen=True)
class Value:
    """A variable of the kernel."""

    name: str
    axes: Axes = Axes.TILE


Operand = Constant | Value


@dataclass(frozen=True)
class Address:
    """Elements `start` and following of the rows of an array, at the current step.

    `base` is an expression for the first row. Each sequence has a row of `width` elements; all
    have the same one if it is `shared`.
    """

    base: str
    width: int
    start: int = 0
    shared: bool = False


class Statement:
    """Something that a kernel does."""


Block = tuple[Statement, ...]


@dataclass(frozen=True)
class Comment(Statement):
    text: str


@dataclass(frozen=True)
class Code(Statement):
    """A line that is written as it stands: indices, bounds and calls that occur once."""

    text: str


@dataclass(frozen=True)
class Let(Statement):
    """Give an expression a name, or a name a new value. {0}, {1}, … in it are operands."""

    name: str
    expression: str
    args: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Elementwise(Statement):
    """target = node's operation on args."""

    target: Value
    node: Node
    args: tuple[Operand, ...]


@dataclass(frozen=True)
class Load(Statement):
    """target = the elements at an address: one per unit if the target has units, else one."""

    target: Value
    address: Address


@dataclass(frozen=True)
class Store(Statement):
    address: Address
    value: Operand


@dataclass(frozen=True)
class Accumulate(Statement):
    """Add to a variable, or to what lies at an address."""

    total: Value | Address
    value: Operand


@dataclass(frozen=True)
class Barrier(Statement):
    """Wait for the threads that share the work (of one program, on a GPU)."""


@dataclass(frozen=True)
class If(Statement):
    condition: str
    body: Block
    otherwise: Block = ()


@dataclass(frozen=True)
class For(Statement):
    """The body for each value of a variable from `start` to below `stop`."""

    variable: str
    start: str
    stop: str
    body: Block
    step: str = "1"
