"""Tables that commands put out: to standard output, or as a file."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from metarnn.graph.files import beside


def write(lines: Sequence[Sequence[str]], out: Path | None, about: str) -> None:
    """Comma-separated values: printed, or written to `out`, which one line then says."""
    if out is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows(lines)
        return
    with beside(out) as new, new.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
    print(f"{about}, in {out}")
