"""Recursion over nodes without the stack of Python: a step may be a chain of thousands."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

Visit = Generator[int, Any, T]  # yields nodes, is sent the result for each, returns its own


def unrolled(visit: Callable[[int], Visit[T]], k: int) -> T:
    """Return the result of `visit` for node k.

    Where a recursive function would call itself, `visit` yields the node and receives the result.

    >>> def depth(k):
    ...     return 1 + (yield k - 1) if k else 0
    >>> unrolled(depth, 5000)
    5000
    """
    stack, result = [visit(k)], None
    while True:
        try:
            needed = stack[-1].send(result)
        except StopIteration as end:
            stack.pop()
            result = end.value
            if not stack:
                return end.value
        else:
            stack.append(visit(needed))
            result = None
