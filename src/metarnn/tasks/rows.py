"""The rows of CSV files."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from metarnn.graph.files import text


def csv_rows(path: Path, dialect: str = "excel") -> list[list[str]]:
    """The rows of a CSV file that are not empty; a ValueError names a file that is none."""
    lines = io.StringIO(text(path).removeprefix("\ufeff"), newline="")
    try:
        return [row for row in csv.reader(lines, dialect) if row]
    except csv.Error as error:
        raise ValueError(f"{path}: {error}") from None
