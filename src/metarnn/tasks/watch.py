"""How far an evaluation is, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Watcher = Callable[[int, int], None]  # how much is done, of how much
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Watcher) -> Generator[None]:
    """Call `watcher` after every batch of the evaluations within."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def counted(batches: Sequence[T]) -> Iterator[T]:
    """Iterate over batches, and count them for the watcher.

    >>> with watched(lambda done, total: print(f"{done} of {total}")):
    ...     sum(counted([5, 6]))
    1 of 2
    2 of 2
    11
    """
    for done, batch in enumerate(batches, 1):
        yield batch
        report(done, len(batches))


def report(done: int, total: int) -> None:
    """Tell the watcher, if there is one, how much of an evaluation is done."""
    if (watcher := _watcher.get()) is not None:
        watcher(done, total)
