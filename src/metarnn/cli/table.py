"""Tables that commands put out: to standard output, or as a file."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from metarnn.graph.files import beside


def write(lines: Sequence[Sequence[str]], out: Path | None, about: str) -> None:
    """Comma-separated values: printed, or written to `out`, which one line then says."""
    if out is None:
        try:
            csv.writer(sys.stdout, lineterminator="\n").writerows(lines)
            sys.stdout.flush()
        except BrokenPipeError:  # whoever read has seen enough: `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    with beside(out) as new, new.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
    print(f"{about}, in {out}")
