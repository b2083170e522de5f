"""What a forecast is worth beside: the last value, the last season, a linear map."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from metarnn.tasks.forecasting.linear import apply, fit
from metarnn.tasks.forecasting.windows import Window, Windows

Baseline = Callable[[Window], Tensor]


def naive(window: Window) -> Tensor:
    """The last value, for ever: [H, B, C]."""
    return window.x[-1:].expand_as(window.y)


def seasonal(season: int) -> Baseline:
    """The values of the last season, over and over."""

    def forecast(window: Window) -> Tensor:
        steps = min(season, len(window.x))
        place = torch.arange(len(window.y)) % steps
        return window.x[len(window.x) - steps + place]

    return forecast


def linear(windows: Windows) -> Baseline:
    """The linear map of a window that is best in the training part, see `fit`."""
    weight = fit(windows)
    return lambda window: apply(weight, window)


def baselines(windows: Windows) -> dict[str, Baseline]:
    """All three, by name."""
    season = windows.scheme.season
    return {
        "naive": naive,
        f"seasonal naive ({season})": seasonal(season),
        "linear": linear(windows),
    }
