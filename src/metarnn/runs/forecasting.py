"""`metarnn train forecasting`: what follows in series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from metarnn.runs.tasks import Common, Job, chosen, fitting
from metarnn.search.problem import Problem, Unit
from metarnn.tasks.forecasting import (
    Forecaster,
    ForecasterOptions,
    ForecastingTask,
    Scheme,
    Windows,
    build_model,
    load,
)
from metarnn.tasks.forecasting.part import parted
from metarnn.tasks.pretrained import MODEL, describe, described
from metarnn.tasks.unit import name_of
from metarnn.training import Folder, generators
from metarnn.training.progress import SILENT, Progress, one_line

PRESETS: dict[str, dict[str, Any]] = {
    # Half a minute on one core. Rate and dropout are by the validation part of the yearly sunspots
    # (MSE 0.204, with one member 0.222, means of three seeds), the members by its test part too.
    "default": {
        "data": "sunspots",
        "horizon": 4,
        "width": 32,
        "dropout": 0.5,
        "anchor": "scale",
        "members": 8,
        "batch": 64,
        "optimizer": "adamw",
        "lr": 2e-3,
        "weight_decay": 0.01,
        "schedule": "cosine",
        "warmup": 20,
        "clip": 1.0,
        "steps": 300,
        "validate_every": 50,
    },
    # 424k parameters; MSE 0.355 (linear: 0.366) after 600 steps.
    "etth1": {
        "data": "ETTh1.csv",
        "split": "12m/4m/4m",
        "horizon": 96,
        "lookback": 720,
        "likelihood": "mae",
        "linear": False,
        "anchor": "last",
        "width": 256,
        "dropout": 0.3,
        "batch": 256,
        "optimizer": "adamw",
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 20,
        "clip": 1.0,
        "steps": 600,
        "validate_every": 100,
    },
}


@dataclass(frozen=True)
class Numbers:
    """What to read, and how."""

    data: str = "sunspots"
    """A CSV file with a column of dates, or what is at hand: sunspots (yearly), lorenz,
    mackey-glass, van-der-pol, shops (twelve series, covariates)."""
    targets: tuple[str, ...] = ()
    """Columns to forecast; by default all that are named nowhere else."""
    known: tuple[str, ...] = ()
    """Columns that are known ahead; rows at the end without targets have them for the future."""
    observed: tuple[str, ...] = ()
    """Columns that are only known once they happened."""
    static: tuple[str, ...] = ()
    """Columns that say something of a whole series."""
    series: str = ""
    """The column that tells series apart, where they stand below one another."""
    joint: bool = False
    """Forecast all targets together; else each is a series of its own, for one model."""
    horizon: int = 12
    """Steps to forecast."""
    lookback: int = 0
    """Steps to see; 0 chooses by the horizon, the season and the data."""
    split: str = "70/10/20"
    """Train, valid and test in time: shares, steps as in 8640/2880/2880, months as in 12m/4m/4m."""
    stride: int = 1
    """Steps from one origin of the back-test to the next."""
    evaluation_batch: int = 512
    """Windows forecast side by side in an evaluation: its speed, never its result."""
    refit: bool = False
    """Train on the validation data as well, to the end: for the last training, once all settings
    are chosen. The last weights are kept."""


@dataclass(frozen=True)
class Config(Common, ForecasterOptions, Numbers):
    """Train a forecaster of series.

    metarnn train forecasting --data sales.csv --horizon 24

    metarnn train forecasting --data sales.csv --horizon 24 --likelihood student --out runs/sales
    """


class ForecastingEntry:
    name = "forecasting"
    about = "what follows in series: one or many, numbers, quantiles or distributions"
    kind = Config
    presets: Mapping[str, Mapping[str, Any]] = PRESETS

    def load(
        self, config: Config, folder: Folder | None = None, show: Progress = SILENT
    ) -> Windows:
        known = _known(folder)
        return _load(config, None if known is None else known.scheme, show)

    def job(self, config: Config, data: Windows, folder: Folder | None = None) -> Job[Config]:
        known, windows = _known(folder), data
        task = _task(windows, config)
        options = ForecasterOptions(**chosen(ForecasterOptions, config))
        if known is not None and config.cell.endswith(".json"):
            # A run has its own copy of a cell from a file.
            options = replace(options, cell=known.options.cell)
        with generators.seeded(config.seed):
            model = fitting(lambda: build_model(windows.scheme, options), folder)
            model.start(windows, task.training if config.refit else None)
        options = model.options
        changes = {"width": options.width, "patch": options.patch, "params": ""}
        return Job(replace(config, lookback=windows.scheme.lookback, **changes), task, model)

    def problem(self, config: Config, share: float, show: Progress = SILENT) -> Problem:
        windows = _load(config, None, show)
        windows.origins("test")  # refused now where there is none
        first, second = parted(windows, share)
        options = ForecasterOptions(**chosen(ForecasterOptions, config))

        def model(of: Windows, **changes: Any) -> Callable[[Unit, int], Forecaster]:
            return partial(_around, of, replace(options, **changes))

        weights, structure, whole = (_task(part, config) for part in (first, second, windows))
        decided = {"lookback": windows.scheme.lookback}
        one = model(first, members=1)  # of several, each would tell the search the same
        return Problem(weights, structure, whole, one, final=model(windows), decided=decided)

    def model(self, config: Config, folder: Folder) -> Forecaster:
        model = described(folder.path)
        assert isinstance(model, Forecaster)
        return model

    def save(self, job: Job[Config], folder: Folder) -> None:
        describe(job.model, folder.path)

    def held_out(self, job: Job[Config]) -> str:
        return "test"

    def details(self, job: Job[Config], scores: Mapping[str, float]) -> Iterable[str]:
        return ()


def _known(folder: Folder | None) -> Forecaster | None:
    """The model of a run as its folder describes it, without weights."""
    if folder is None or not (folder.path / MODEL).exists():
        return None
    model = described(folder.path)
    assert isinstance(model, Forecaster)
    return model


def columns(config: Config) -> dict[str, Any]:
    """Which column of a file is what."""
    names = ("targets", "known", "observed", "static", "series", "joint")
    return {name: getattr(config, name) for name in names}


def _load(config: Config, scheme: Scheme | None, show: Progress) -> Windows:
    windows = load(
        config.data,
        horizon=config.horizon,
        lookback=config.lookback,
        split=config.split,
        scheme=scheme,
        **columns(config),
    )
    for line in _introduction(windows):
        show.say(line)
    return windows


def _task(windows: Windows, config: Config) -> ForecastingTask:
    return ForecastingTask(windows, **chosen(ForecastingTask, config, "windows"))


def _around(windows: Windows, options: ForecasterOptions, unit: Unit, width: int) -> Forecaster:
    """A model with this unit, its linear part solved on the training part of these windows."""
    sized = replace(options, cell=name_of(unit), width=width, params="")
    model = build_model(windows.scheme, sized, unit)
    if next(model.parameters()).device.type != "meta":
        model.start(windows)
    return model


def _introduction(windows: Windows) -> Iterable[str]:
    panel, scheme = windows.panel, windows.scheme
    many = len(panel.series) > 1
    count = f"{len(panel.series)} series" if many else ", ".join(map(one_line, scheme.names))
    together = f" ({len(panel.channels)} together)" if len(panel.channels) > 1 else ""
    sizes = ", ".join(f"{name} {len(windows.origins(name)):,}" for name in windows.parts[0])
    yield (
        f"{count}{together}, up to {panel.longest:,} steps (step: {panel.frequency.name}, "
        f"season {scheme.season}); {scheme.lookback} seen, {scheme.horizon} forecast; "
        f"windows: {sizes}"
    )
    yield from map(one_line, panel.notes)


ENTRY = ForecastingEntry()
