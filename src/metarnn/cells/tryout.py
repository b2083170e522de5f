from __future__ import annotations

import torch

from metarnn.cells import check
from metarnn.cells.base import Cell, Theta, shapes


def try_out(cell: Cell) -> None:
    """One step on shapes alone, so that a cell that does not do what it declares is told so now."""
    name = type(cell).__name__
    meta = {n: torch.empty(shape, device="meta") for n, shape in shapes(cell).items()}
    theta = Theta(cell, meta)
    seen = {"x": cell.window * cell.input_size, **cell.given}
    rows = {n: torch.empty(1, width, device="meta") for n, width in seen.items()}
    drive = cell.drive(theta, rows if cell.given else rows["x"])
    new = cell.step(theta, drive, tuple(torch.empty(1, n, device="meta") for n in cell.states))
    if not isinstance(new, tuple):
        raise TypeError(f"{name}.step returned a {type(new).__name__}: expected a tuple of states")
    widths = tuple(part.shape[-1] for part in new)
    if widths != cell.states:
        check.refuse(f"{name}.step", f"states of widths {widths}", f"{cell.states}, as declared")
    width = cell.output(theta, drive, new).shape[-1]
    if width != cell.output_size:
        check.refuse(f"{name}.output", f"width {width}", f"output_size={cell.output_size}")
