"""Forecasting as a task: windows, loss, and scores from every origin of a split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from metarnn.tasks.forecasting.baselines import Baseline
from metarnn.tasks.forecasting.likelihoods import LEVELS
from metarnn.tasks.forecasting.metrics import Scores
from metarnn.tasks.forecasting.model import Forecaster
from metarnn.tasks.forecasting.part import joined
from metarnn.tasks.forecasting.rules import rule_set
from metarnn.tasks.forecasting.windows import SPLITS, Window, Windows
from metarnn.tasks.rules import RuleSet
from metarnn.tasks.shuffle import ShuffledBatches
from metarnn.tasks.split import Piece
from metarnn.tasks.task import Loss, Shard, trained_alike
from metarnn.tasks.watch import counted

VALIDATION = 2000  # windows are enough to compare one validation with the next


@dataclass(frozen=True)
class ForecastingTask:
    """Tell what follows.

    >>> from metarnn.tasks import forecasting
    >>> windows = forecasting.load("sunspots", horizon=10)
    >>> task = ForecastingTask(windows, batch=8)
    >>> model = forecasting.build_model(windows.scheme, forecasting.ForecasterOptions(width=8))
    >>> task.loss(model, next(task.batches(Shard()))).count
    80
    >>> list(task.evaluate(model, "test"))
    ['crps', 'mse', 'mae', 'mase', 'smape', 'coverage', 'windows']

    windows  see `load`
    batch    windows of a batch, over all processes
    seed     of their order
    stride   steps from one origin of a back-test to the next; validations have fewer
    refit    train on the validation time as well
    """

    windows: Windows
    batch: int = 64
    seed: int = 0
    stride: int = 1
    evaluation_batch: int = 512
    refit: bool = False
    enough: ClassVar[int] = 1000

    @cached_property
    def training(self) -> Windows:
        """The windows to train on, as their `train`."""
        return joined(self.windows) if self.refit else self.windows

    @property
    def batches_per_epoch(self) -> float:
        return len(self.training.origins("train")) / self.batch

    def contents(self) -> dict[str, Iterator[Piece]]:
        """The steps of each split, for `Split.of`."""
        return {name: self._contents(name) for name in SPLITS}

    def _contents(self, split: str) -> Iterator[Piece]:
        for series, parts in zip(self.windows.panel.series, self.windows.parts, strict=True):
            start, end = parts[split]
            yield np.array([start, end]).tobytes()
            for values in (series.values, series.known, series.observed):
                yield values[start:end].tobytes()

    def amount(self, split: str) -> int:
        """Windows that an evaluation of a split forecasts."""
        return len(self.windows.origins(split, self.stride_of(split)))

    def sampled(self, split: str, most: int) -> ForecastingTask:
        """The same task with a sample of at most so many windows in a split."""
        windows = self.windows.sampled(split, most, self.stride_of(split))
        return trained_alike(replace(self, windows=windows, stride=1), self)

    def batches(self, shard: Shard) -> ShuffledBatches[Window]:
        origins = self.training.origins("train")
        return ShuffledBatches(
            len(origins),
            self.batch,
            lambda chosen: self.windows.at(origins[chosen]),
            seed=self.seed,
            shard=shard,
        )

    def loss(self, model: nn.Module, batch: Window, carried: Any = None) -> Loss:
        assert isinstance(model, Forecaster)
        batch = batch.to(next(model.parameters()).device)
        p, y = model(batch), model.targets(batch)
        there = y.isfinite()
        each = model.likelihood.loss(p.float(), y.nan_to_num(0.0)).mean(0)  # over the members
        count = int(there.sum())
        return Loss(torch.where(there, each, 0.0).sum() / max(count, 1), max(count, 1))

    def evaluate(self, model: nn.Module, split: str = "valid") -> dict[str, float]:
        """Scores over the windows of a split, from every origin; the first is to be made small."""
        return self.backtest(model, split, self.stride_of(split))

    def stride_of(self, split: str) -> int:
        """Steps from one origin to the next in an evaluation."""
        if split != "valid":
            return self.stride
        return max(self.stride, len(self.windows.origins(split)) // VALIDATION)

    def simple_rules(self, split: str, seconds: float) -> RuleSet:
        """Naive, seasonal naive and linear forecasts."""
        return rule_set(self, split)

    def backtest(
        self, model: nn.Module | Baseline, split: str = "test", stride: int = 1
    ) -> dict[str, float]:
        """Rolling origin: a forecast every `stride` steps, each from all that was known by then."""
        scores, count = self.scores(model, split, stride)
        found = scores.result()
        first = "crps" if "crps" in found else "mse"
        return {first: found.pop(first), **found, "windows": float(count)}

    @torch.no_grad()
    def scores(
        self, model: nn.Module | Baseline, split: str = "test", stride: int = 1
    ) -> tuple[Scores, int]:
        scores = Scores(self.windows)
        origins = self.windows.origins(split, stride)
        count = max(-(-len(origins) // self.evaluation_batch), 1)
        for part in counted(np.array_split(origins, count)):
            window = self.windows.at(part)
            if not isinstance(model, Forecaster):
                scores.add(window, model(window))
                continue
            window = window.to(next(model.parameters()).device)
            told = model.forecast(window)
            crps = None
            if told.quantiles is not None:
                y = window.y.nan_to_num(0.0)
                if told.parameters is not None:
                    crps = model.likelihood.crps(told.parameters, y)
                else:
                    crps = _pinball(told.quantiles, y)
            scores.add(window, told.mean, told.quantiles, crps)
        return scores, len(origins)


def _pinball(quantiles: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    level = y.new_tensor(LEVELS).view(-1, 1, 1, 1)
    gap = y - quantiles
    return 2 * torch.maximum(level * gap, (level - 1) * gap).mean(0)
