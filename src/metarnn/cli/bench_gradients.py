"""`metarnn bench gradients`: what gradient rules cost, and how near the exact one they come."""

from __future__ import annotations

from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Table

from metarnn.bench import gradients as bench


def gradients(
    which: tuple[Literal["cosines", "checkpoints", "elementwise", "memory"], ...] = (
        "cosines",
        "checkpoints",
        "elementwise",
        "memory",
    ),
    seeds: int = 3,
) -> None:
    """Measure gradient rules here, on one thread, in a few minutes.

    metarnn bench gradients --which cosines --seeds 1

    Args:
        which: cosines of approximations with the exact gradient; time and memory of BPTT with
            checkpoints; time of exact RTRL of elementwise cells; its memory over long streams
        seeds: networks that cosines are a mean over
    """
    torch.set_num_threads(1)
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 120
    if "cosines" in which:
        rows = []
        for problem in bench.PROBLEMS:
            found = bench.cosines(problem, seeds=seeds)
            shown = {name: f"{cos:.2f} ({error:.2g})" for name, (cos, error) in found.items()}
            rows.append({"cosine (squared error / ‖∇‖²)": problem, **shown})
        _print(console, rows)
    if "checkpoints" in which:
        _print(console, list(bench.checkpoints()))
    if "elementwise" in which:
        _print(console, list(bench.elementwise()))
    if "memory" in which:
        found = bench.memory_over_time()
        _print(console, [{"steps of a stream": n, "MB": mb} for n, mb in found.items()])


def _print(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in rows[0]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()))
    console.print(table)
    console.print()
