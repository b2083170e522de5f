"""Tables that commands put out: to standard output, or as a file."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from metarnn.graph.files import beside
from metarnn.tasks.rows import is_number
from metarnn.training.progress import for_output

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet computes a cell that begins so


def write(lines: Sequence[Sequence[str]], out: Path | None, about: str) -> None:
    """Comma-separated values: printed, or written to `out`, which one line then says.

    A text that a spreadsheet would run as a formula gets an apostrophe before it; numbers stay
    numbers. Control characters are escaped on a terminal.
    """
    lines = [[_safe(cell) for cell in line] for line in lines]
    if out is None:
        lines = [[for_output(cell) for cell in line] for line in lines]
        csv.writer(sys.stdout, lineterminator="\n").writerows(lines)
        return
    with beside(out) as new, new.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
    print(f"{about}, in {out}")


def _safe(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA) and not is_number(cell) else cell
