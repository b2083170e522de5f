"""`metarnn forecast RUN`: what follows the end of series."""

from __future__ import annotations

from pathlib import Path

import torch

from metarnn.cli import table
from metarnn.runs import forecasting
from metarnn.runs.tasks import open_run, refuse_use
from metarnn.tasks.forecasting import Forecaster, load_panel
from metarnn.tasks.forecasting.future import SHOWN, future
from metarnn.tasks.pretrained import from_pretrained
from metarnn.training.world import find_device


def forecast(run: Path, /, data: str = "", out: Path | None = None, device: str = "cpu") -> None:
    """Forecast with the model of a run folder, from the end of each series on, as CSV: a line for
    each step of each series, with quantiles where the model tells them.

    metarnn forecast runs/forecasting

    metarnn forecast runs/forecasting --data until-today.csv --out next.csv

    Args:
        run: the run folder
        data: the series up to now, a file like the one trained on; by default that one
        out: a CSV file to write; by default standard output
        device: where to compute: auto, cpu, cuda
    """
    _forecast(run, data, out, device)


def _forecast(path: Path, data: str, out: Path | None, device: str) -> None:
    place = find_device(device)
    run = open_run(path)
    if not isinstance(run.config, forecasting.Config):
        refuse_use(path, "a forecaster", run.entry)
    model = from_pretrained(path)
    assert isinstance(model, Forecaster)
    panel = load_panel(data or run.config.data, **forecasting.columns(run.config))
    torch.manual_seed(run.config.seed)
    rows = future(model.to(place), panel)
    quantiles = [f"q{round(100 * q)}" for q in SHOWN] if len(rows[0]) > 4 else []
    lines = [["series", "channel", "date", "forecast", *quantiles]]
    lines += [[*row[:3], *(f"{value:.6g}" for value in row[3:])] for row in rows]
    table.write(lines, out, f"{model.scheme.horizon} steps of {len(panel.series)} series")
