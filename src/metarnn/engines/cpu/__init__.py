"""Any cell on a CPU: its graph as generated C, forward and backward."""

from __future__ import annotations

import warnings
from functools import lru_cache

from metarnn.cells import Cell
from metarnn.engines.cpu.compile import CannotCompile, compiler
from metarnn.engines.cpu.run import run
from metarnn.engines.cpu.stream import Step
from metarnn.graph import Untraceable, trace_cell

_broken: list[str] = []  # why compiling failed in this process, once it has


def broken() -> bool:
    return bool(_broken)


def obstacle(cell: Cell) -> str:
    """Why this engine cannot run a cell; empty when nothing is known to stand in the way."""
    if _broken:
        return _broken[0]
    if not compiler():
        give_up(CannotCompile("no C compiler was found (looked for $CC, cc, gcc and clang)"))
        return _broken[0]
    return untraceable(cell)


def untraceable(cell: Cell) -> str:
    """Why a cell has no graph; empty when it has one."""
    try:
        return _untraceable(cell)
    except TypeError:  # an option that has no hash
        return f"{type(cell).__name__} has options that cannot be compared"


@lru_cache(maxsize=1024)
def _untraceable(cell: Cell) -> str:
    try:
        trace_cell(cell)
    except Untraceable as error:
        kind = type(cell).__name__
        message = f"metarnn runs {kind} in plain torch, slower: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)  # once a cell: results are kept
        return str(error)
    return ""


def give_up(error: CannotCompile) -> None:
    """Use the engine no more in this process, and say so once."""
    if not _broken:
        _broken.append(str(error))
        warnings.warn(
            f"metarnn runs without generated C code, slower: {error}", RuntimeWarning, stacklevel=2
        )


__all__ = ["CannotCompile", "Step", "broken", "give_up", "obstacle", "run", "untraceable"]
