"""`metarnn report RUN…`: one page that shows what was learned, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from metarnn.cli.table import say
from metarnn.report.write import write_report
from metarnn.training.progress import progress


def report(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional], /, out: Path | None = None
) -> None:
    """Write one page about a run, or about several side by side: a single HTML file with nothing
    to fetch.

    metarnn report runs/lm
    metarnn report runs/lm runs/gru --out both.html

    Args:
        runs: folders that `metarnn train`, `search` and `learn` left
        out: the file to write; by default report.html in the folder, for several here
    """
    say(f"written to {write_report(runs, out, progress())}")
