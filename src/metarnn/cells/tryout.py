from __future__ import annotations

from math import prod
from typing import Any

import torch

from metarnn.cells import check
from metarnn.cells.base import Cell, Theta, shapes

# Zeros that are computed with in a millisecond. On shapes alone, the first step of a process takes
# 1.5 s: torch loads its compiler for it.
MOST_ZEROS = 2**20


def try_out(cell: Cell) -> None:
    """One step on zeros, so that a cell that does not do what it declares is told so now.

    Where that takes many of them, on shapes alone.
    """
    weights = shapes(cell)
    seen = {"x": cell.window * cell.input_size, **cell.extra_inputs}
    zeros = sum([*map(prod, weights.values()), *seen.values(), *cell.states])
    with torch.device("cpu" if zeros <= MOST_ZEROS else "meta"):
        theta = Theta(cell, {n: torch.zeros(shape) for n, shape in weights.items()})
        rows = {n: torch.zeros(1, width) for n, width in seen.items()}
        drive = cell.drive(theta, rows if cell.extra_inputs else rows["x"])
        new = cell.step(theta, drive, tuple(torch.zeros(1, n) for n in cell.states))
        _check(cell, new)
        width = cell.output(theta, drive, new).shape[-1]
    if width != cell.output_size:
        name = type(cell).__name__
        check.refuse(f"{name}.output", f"width {width}", f"output_size={cell.output_size}")


def _check(cell: Cell, new: Any) -> None:
    name = type(cell).__name__
    if not isinstance(new, tuple):
        raise TypeError(f"{name}.step returned a {type(new).__name__}: expected a tuple of states")
    widths = tuple(part.shape[-1] for part in new)
    if widths != cell.states:
        check.refuse(f"{name}.step", f"states of widths {widths}", f"{cell.states}, as declared")
