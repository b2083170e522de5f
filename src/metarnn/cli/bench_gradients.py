"""`metarnn bench gradients`: what gradient rules cost, and how near the exact one they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from metarnn.bench import gradients as bench
from metarnn.cells import check
from metarnn.cli.table import print_table
from metarnn.gradients import RTRL
from metarnn.tasks.forecasting.embedded import SUNSPOTS


def gradients(
    which: tuple[Literal["cosines", "online", "checkpoints", "elementwise", "memory"], ...] = (
        "cosines",
        "online",
        "checkpoints",
        "elementwise",
        "memory",
    ),
    seeds: int = 3,
    series: Path | None = None,
) -> None:
    """Measure gradient rules here, on one thread, in a few minutes.

    metarnn bench gradients --which cosines --seeds 1

    metarnn bench gradients --which online --series sunspots.csv

    Args:
        which: cosines of approximations with the exact gradient; a series learned online; time and
            memory of BPTT with checkpoints; time of exact RTRL of elementwise cells; its memory
            over long streams
        seeds: networks that cosines and errors are a mean over
        series: what to learn online, a CSV file whose last column is numbers; by default the yearly
            sunspots
    """
    values = torch.tensor(SUNSPOTS) if series is None else _column(series)
    torch.set_num_threads(1)
    if "cosines" in which:
        rows = []
        for problem in bench.PROBLEMS:
            found = bench.cosines(problem, seeds=seeds)
            shown = {name: f"{cos:.2f} ({error:.2g})" for name, (cos, error) in found.items()}
            rows.append({"cosine (squared error / ‖∇‖²)": problem, **shown})
        _print(rows)
    if "online" in which:
        error = "squared error / variance"
        rows = [{"rule": "the last value again", error: bench.repeating(values)}]
        for name, rule in {"rtrl": RTRL(), **bench.APPROXIMATIONS}.items():
            errors = [bench.online(values, rule, seed=seed) for seed in range(seeds)]
            shown = f"{sum(errors) / seeds:.3f} ({min(errors):.3f} to {max(errors):.3f})"
            rows.append({"rule": name, error: shown})
        _print(rows)
    if "checkpoints" in which:
        _print(list(bench.checkpoints()))
    if "elementwise" in which:
        _print(list(bench.elementwise()))
    if "memory" in which:
        found = bench.memory_over_time()
        _print([{"steps of a stream": n, "MB": mb} for n, mb in found.items()])


def _column(path: Path) -> torch.Tensor:
    """The last column of a CSV file, below its title."""
    found = np.genfromtxt(path, delimiter=",", skip_header=1, usecols=[-1], dtype=np.float32)
    if found.ndim != 1 or len(found) < 3 or not np.isfinite(found).all():
        check.refuse("series", str(path), "a CSV file with at least 3 numbers in its last column")
    return torch.from_numpy(found)


def _print(rows: list[dict[str, Any]]) -> None:
    lines = [[f"{v:.3g}" if isinstance(v, float) else str(v) for v in r.values()] for r in rows]
    print_table(list(rows[0]), lines)
    print()
