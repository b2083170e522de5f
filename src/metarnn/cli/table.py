"""Tables and lines that commands put out: as wide as the terminal, or as a file."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from metarnn.graph.files import beside
from metarnn.tasks.rows import without_formula
from metarnn.training.progress import GAP, column_groups, line_for_output, one_line, printable


def write(lines: Sequence[Sequence[str]], out: Path | None, about: str) -> None:
    """Comma-separated values: printed, or written to `out`, which one line then says.

    A text that a spreadsheet would run as a formula gets an apostrophe before it; numbers stay
    numbers. Control characters are escaped on a terminal.
    """
    lines = [[without_formula(cell) for cell in line] for line in lines]
    if out is None:
        lines = [[line_for_output(cell) for cell in line] for line in lines]
        csv.writer(sys.stdout, lineterminator="\n").writerows(lines)
        return
    with beside(out) as new, new.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
    say(f"{about}, in {out}")


class Output(Console):
    """A console whose reader may stop reading: that is no error of ours."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Standard output. Names and paths are data: nothing in them is markup."""
    return Output(markup=False, highlight=False)


def say(text: str = "", out: Console | None = None) -> None:
    """Print lines: wrapped between words in a terminal, as they are elsewhere; without orders for
    the terminal, which names from files may hold."""
    out = out or console()
    out.print(printable(text), soft_wrap=not out.is_terminal)


def print_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    out: Console | None = None,
    left: Sequence[str] = (),
) -> None:
    """Print a table without cutting anything.

    Where a terminal is too narrow, the columns follow below each other in several tables, each
    with the first column again. Elsewhere the table is as wide as it needs to be.

    Args:
        left: columns other than the first that are aligned to the left
    """
    out = out or console()
    head, rows = list(map(one_line, head)), [list(map(one_line, row)) for row in rows]
    left = list(map(one_line, left))
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    if not out.is_terminal:
        out.width = max(out.width, sum(widths) + GAP * len(widths))
    for numbers in column_groups(widths, out.width):
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
        for k in numbers:
            justify = "left" if k == 0 or head[k] in left else "right"
            table.add_column(head[k], justify=justify, overflow="fold")
        for row in rows:
            table.add_row(*(row[k] for k in numbers))
        out.print(table)
