"""How good forecasts are, over all windows of a split."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from metarnn.tasks.forecasting.likelihoods import LEVELS
from metarnn.tasks.forecasting.windows import Window, Windows

LOW, HIGH = LEVELS.index(0.1), LEVELS.index(0.9)  # 80% of what comes should lie between


class Scores:
    """Sums over windows: `add` some, then `result`.

    mse, mae        in scaled numbers, as the field reports them
    mase            mean |error| over that of the seasonal naive rule in the training part
    smape           mean 2|error| / (|y| + |ŷ|), in the series' own units, from 0 to 2
    crps, coverage  of forecasts with quantiles; coverage of the 80% in the middle
    """

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        scheme = windows.scheme
        self.mean = torch.tensor(scheme.mean, dtype=torch.float64)
        self.std = torch.tensor(scheme.std, dtype=torch.float64)
        season = scheme.season
        usual = [usual_error(windows.train_values(k), season) for k in range(len(scheme.names))]
        self.usual = torch.tensor(np.array(usual))
        self.sums: dict[str, float] = {}
        self.count = 0

    def add(
        self,
        window: Window,
        mean: Tensor,
        quantiles: Tensor | None = None,
        crps: Tensor | None = None,
    ) -> None:
        series = window.series.cpu()
        y, guess = window.y.double().cpu(), mean.double().cpu()
        there = y.isfinite()
        error = (guess - y).abs()
        scale, shift = self.std[series], self.mean[series]
        real, told = y * scale + shift, guess * scale + shift
        size = (real.abs() + told.abs()).clamp(min=1e-12)
        terms = {
            "mse": error.square(),
            "mae": error,
            "mase": error * scale / self.usual[series],
            "smape": 2 * (real - told).abs() / size,
        }
        if crps is not None:
            terms["crps"] = crps.double().cpu()
        if quantiles is not None:
            low, high = quantiles[LOW].double().cpu(), quantiles[HIGH].double().cpu()
            terms["coverage"] = ((low <= y) & (y <= high)).double()
        for name, value in terms.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value[there].sum())
        self.count += int(there.sum())

    def result(self) -> dict[str, float]:
        return {name: total / max(self.count, 1) for name, total in self.sums.items()}


def usual_error(values: np.ndarray, season: int) -> np.ndarray:
    """The mean |x_t - x_{t-season}| of each channel of [T, C], what MASE is relative to.

    >>> usual_error(np.array([[1.0], [2.0], [4.0]]), 1)
    array([1.5])
    """
    season = season if len(values) > season else 1
    gaps = np.abs(values[season:] - values[:-season])
    found = np.array([np.nanmean(g) if np.isfinite(g).any() else 1.0 for g in gaps.T])
    return np.where(found > 1e-12, found, 1.0)
