"""What follows the end of series, in their own units."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from metarnn.cells import check
from metarnn.tasks.forecasting.likelihoods import LEVELS
from metarnn.tasks.forecasting.model import Forecaster
from metarnn.tasks.forecasting.series import Panel
from metarnn.tasks.forecasting.windows import Windows

SHOWN = (0.1, 0.5, 0.9)


@torch.no_grad()
def future(model: Forecaster, panel: Panel) -> list[tuple[Any, ...]]:
    """Rows (series, channel, date or number of the step, forecast, and its quantiles at SHOWN where
    there are any) of what follows each series of a panel.

    The series are those that the model was trained on, which may have gone on since.
    """
    scheme = model.scheme
    place = {name: k for k, name in enumerate(scheme.names)}
    for s in panel.series:
        if s.name not in place:
            check.refuse("series", s.name, f"one that was trained on: {', '.join(place)}")
        if len(s) < scheme.lookback:
            check.refuse("steps", len(s), f"at least the {scheme.lookback} the model reads", s.name)
        if scheme.known and len(s.known) < len(s) + scheme.horizon:
            missing = len(s) + scheme.horizon - len(s.known)
            advice = "Add rows at the end of the file, with nothing in the targets."
            check.refuse("known", f"{missing} steps short", f"{scheme.horizon} ahead", advice)
    windows = Windows(_reaching(panel, scheme.horizon), _chosen(model, panel, place))
    origins = np.array([(k, len(s)) for k, s in enumerate(panel.series)])
    window = windows.at(origins)
    window.series = torch.tensor([place[s.name] for s in panel.series])
    told = model.forecast(window.to(next(model.parameters()).device))
    rows = []
    for k, s in enumerate(panel.series):
        mean, std = (np.array(part[place[s.name]]) for part in (scheme.mean, scheme.std))
        values = told.mean[:, k].double().cpu().numpy() * std + mean
        levels = []
        if told.quantiles is not None:
            for q in SHOWN:
                level = told.quantiles[LEVELS.index(q), :, k]
                levels.append(level.double().cpu().numpy() * std + mean)
        for c, channel in enumerate(scheme.channels):
            for t, when in enumerate(_dates(s, panel, scheme.horizon)):
                rows.append((s.name, channel, when, values[t, c], *(q[t, c] for q in levels)))
    return rows


def _reaching(panel: Panel, horizon: int) -> Panel:
    """The same with steps to come, whose values are not known."""
    longer = []
    for s in panel.series:
        values = np.concatenate([s.values, np.full((horizon, s.values.shape[1]), np.nan)])
        observed = np.concatenate([s.observed, np.zeros((horizon, s.observed.shape[1]))])
        known = s.known if s.known.shape[1] else np.zeros((len(values), 0))
        longer.append(replace(s, values=values, observed=observed, known=known))
    return replace(panel, series=tuple(longer))


def _chosen(model: Forecaster, panel: Panel, place: dict[str, int]) -> Any:
    """The model's scheme for the series of this panel, in their order."""
    numbers = [place[s.name] for s in panel.series]
    scheme = model.scheme
    return replace(
        scheme,
        names=tuple(scheme.names[k] for k in numbers),
        mean=tuple(scheme.mean[k] for k in numbers),
        std=tuple(scheme.std[k] for k in numbers),
    )


def _dates(series: Any, panel: Panel, horizon: int) -> list[str]:
    if series.start is None:
        return [str(len(series) + t) for t in range(horizon)]
    step = panel.frequency
    last = series.start if len(series) == 1 else step.after(series.start, len(series) - 1)[-1]
    unit = "s" if step.seconds % 86400 else "D"
    return [str(d.astype(f"datetime64[{unit}]")) for d in step.after(last, horizon)]
