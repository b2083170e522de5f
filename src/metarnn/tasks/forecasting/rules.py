"""Simple rules of forecasting, scored from the same origins as a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from metarnn.tasks.forecasting.baselines import Baseline, linear, naive, seasonal
from metarnn.tasks.forecasting.linear import shape
from metarnn.tasks.rules import Rule, RuleSet, fingerprint
from metarnn.tasks.task import Measure

if TYPE_CHECKING:
    from metarnn.tasks.forecasting.task import ForecastingTask

FLOPS = 5e9  # a second, of a regression in float64 on one core
VALUES = 1e7  # a second, of windows that are read and scored


def rule_set(task: ForecastingTask, split: str) -> RuleSet:
    """The last value, the last season, and a ridge regression on the window.

    They tell a number and no distribution, so that the MSE of what is expected compares them.
    """
    windows, stride = task.windows, task.stride_of(split)
    scheme, channels = windows.scheme, len(windows.scheme.channels)
    origins, train = windows.origins(split, stride), len(windows.origins("train"))
    reading = channels * (scheme.lookback + scheme.horizon) / VALUES
    inputs, outputs = shape(scheme)
    rows = train * channels * scheme.horizon // outputs
    fitting = (2 * rows * inputs * (inputs + outputs) + 10 * inputs**3) / FLOPS + train * reading

    def scored(rule: Baseline) -> Mapping[str, float]:
        scores = task.backtest(rule, split, stride)
        return {**scores, "crps": scores["mae"]}  # that of a forecast that is one number

    took = len(origins) * reading
    rules = (
        Rule("naive", took, lambda: scored(naive)),
        Rule(f"seasonal naive ({scheme.season})", took, lambda: scored(seasonal(scheme.season))),
        Rule("linear regression", took + fitting, lambda: scored(linear(windows))),
    )
    series = (each.values for each in windows.panel.series)
    places = (windows.origins("train"), origins, np.array(scheme.mean), np.array(scheme.std))
    sizes = (scheme.lookback, scheme.horizon, scheme.season)
    return RuleSet(fingerprint((*sizes, *places, *series)), Measure("mse"), rules)
