"""Seeing what is generated: whoever watches is handed it, nobody else pays for it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from metarnn.hyper.source import Source


@dataclass(frozen=True)
class Record:
    """What one direction of one layer generated in one call.

    x         [T, B, I], what the layer read
    encoding  [T, B, C], what the encoder made of it; None where the context was given
    numbers   deviations by name, [T, B, n], or [B, n] where they are those of a whole sequence
    alive     [T, B, 1], false from the end of each sequence on, or None
    """

    source: Source
    x: Tensor
    encoding: Tensor | None
    numbers: Mapping[str, Tensor]
    alive: Tensor | None


_watching: ContextVar[list[Record] | None] = ContextVar("watching", default=None)


@contextmanager
def watch() -> Generator[list[Record]]:
    """The records of everything that is generated inside, in the order in which it is.

    Who watches around another is handed what that one is. What torch.compile has compiled leaves
    no records.

    >>> layer = metarnn.MetaRecurrent(cells.GRU(3, 4))
    >>> with watch() as records:
    ...     output, state = layer(torch.randn(5, 2, 3))
    >>> sorted(records[0].numbers)
    ['columns_hh']
    """
    records: list[Record] = []
    token = _watching.set(records)
    try:
        yield records
    finally:
        _watching.reset(token)
        around = _watching.get()
        if around is not None:
            around.extend(records)


def watched() -> bool:
    """Whether anybody is handed what is generated now."""
    return _watching.get() is not None


def note(record: Record) -> None:
    if torch.compiler.is_compiling():  # which cannot see who watches
        return
    records = _watching.get()
    if records is not None:
        records.append(record)
