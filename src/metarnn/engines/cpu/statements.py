"""Statements that only C has; see `codegen.statements` for those of all languages."""

from __future__ import annotations

from dataclasses import dataclass

from metarnn.engines.codegen.statements import Address, Block, For, If, Let, Statement
from metarnn.graph import Node


@dataclass(frozen=True)
class Scope(Statement):
    """A block, whose names end with it."""

    body: Block


@dataclass(frozen=True)
class Pointer(Statement):
    """Name a place in an array."""

    name: str
    array: str
    offset: str = ""


@dataclass(frozen=True)
class BarrierOfAll(Statement):
    """Wait for all threads of the call, those included that run no loop."""


@dataclass(frozen=True)
class CopyRow(Statement):
    """Copy a row, or fill one with a constant; or `add` that to it."""

    to: Address
    source: Address | float
    width: int
    add: bool = False


@dataclass(frozen=True)
class RowOperation(Statement):
    """to = node's operation on a row of `width` elements, which meet in it.

    A norm may put out its rstd, too.
    """

    node: Node
    source: Address
    width: int
    to: Address
    rstd: Address | None = None


@dataclass(frozen=True)
class Array(Statement):
    """Declare a small array with these elements."""

    declaration: str
    elements: tuple[object, ...]


@dataclass(frozen=True)
class Call(Statement):
    """Call a function, such as those of job->linalg: see runtime/job.c for their arguments."""

    function: str
    arguments: tuple[object, ...]


def copy_state(to: str, source: str, elements: str) -> Statement:
    """Copy a state of all sequences, by one thread."""
    return If("thread == 0", (Call("memcpy", (to, source, f"{elements} * sizeof(real)")),))


def for_tiles(units: int, tile: str, body: Block) -> Statement:
    """The body for each of a thread's tiles of units.

    Every other step (and of single steps every other call) goes through them backwards: so it
    begins with the weights that the last one left in the cache.
    """
    return Scope(
        (
            Let("first", f"worker * {tile}"),
            Let("stride", f"workers * {tile}"),
            Let("tiles", f"({units} - first + stride - 1) / stride"),
            For(
                "n",
                "0",
                "tiles",
                (
                    Let("place", "(s + job->reverse_tiles) % 2 ? tiles - 1 - n : n"),
                    Let("tile", "first + place * stride"),
                    *body,
                ),
            ),
        )
    )


def for_vectors(units: int, tile: str, body: Block) -> Block:
    """The body for each vector of units u of the tile, of each sequence b."""
    whole, rest = Let("lanes", "VL"), Let("lanes", f"{units} - u")
    # Twice, so that the compiler knows of all but the last vector that it is full.
    each = If(f"u + VL <= {units}", (whole, *body), (rest, *body))
    by_vector = For("u", "tile", "tile_end", (each,), "VL")
    return (
        Let("tile_end", f"tile + {tile} < {units} ? tile + {tile} : {units}"),
        For("b", "b_begin", "b_end", (by_vector,)),
    )


def for_own_sequences(body: Block) -> Statement:
    """The body for each sequence b of this thread."""
    return For("b", "own_begin", "own_end", body)
