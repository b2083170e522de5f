"""What fields of files hold: numbers, times, nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from metarnn.graph.check import shown
from metarnn.tasks.rows import MISSING


def number(value: Any) -> float:
    if value is None or (isinstance(value, str) and value.strip().lower() in MISSING):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{shown(value)} is no number") from None


def time_of(value: Any) -> float:
    """A number, or a date as seconds."""
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{shown(value)} is no time") from None
    except ValueError:
        return float(np.datetime64(str(value).strip().replace(" ", "T"), "ms").astype(float)) / 1000


def trimmed(row: np.ndarray) -> np.ndarray:
    """Without what is missing at the end: shorter sequences in a table of fixed width."""
    there = np.flatnonzero(np.isfinite(row))
    return row[: there[-1] + 1] if len(there) else row[:1]


def wrong(path: Path, line: int, what: str) -> ValueError:
    return ValueError(f"{path}, line {line}: {what}")
