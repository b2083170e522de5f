"""How far back to look, chosen by a linear regression before any network is trained."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np

from metarnn.tasks.forecasting.linear import PENALTIES, squared_errors
from metarnn.tasks.forecasting.series import Panel
from metarnn.tasks.forecasting.windows import Windows, borders, make_scheme

# The second half of the training time is forecast in so many stretches, each by what is before it.
STRETCHES = 4
LONGEST = 0.4  # of the training time, that a window may span: the first fit needs some of them
# By which the error must be lower than that of the usual look-back, and by which with a longer one:
# a network then makes fewer updates in the same time.
GAIN, LONGER = 0.01, 0.015
EFFORT = 1e9  # products of a fit: of more windows an even sample is taken
FULL = 4  # windows of such a sample for each step of the look-back, at least
WIDE = 1000  # a look-back beyond this is not compared: each fit would take seconds


def choose_lookback(panel: Panel, horizon: int, split: str = "70/10/20") -> int:
    """The look-back with which a ridge regression forecasts later training data best.

    Compared are the usual one, half, a quarter and twice of it, and one and two seasons, on the
    same windows. The validation and test parts take no part in it.
    """
    scheme = make_scheme(panel, horizon, 0, split)
    usual, season = scheme.lookback, scheme.season
    if usual > WIDE:
        return usual
    candidates = {usual // 4, usual // 2, 2 * usual, season, 2 * season}
    start, end = borders(panel.longest, split, panel.frequency)["train"]
    room = min(LONGEST * (end - start) - horizon, WIDE)
    errors = {usual: _rolling_error(panel, horizon, usual, split)}
    for lookback in sorted(candidates - {usual}):
        if 2 <= lookback <= room:
            errors[lookback] = _rolling_error(panel, horizon, lookback, split)
    best = min(errors, key=errors.__getitem__)
    gain = LONGER if best > usual else GAIN
    return best if errors[best] < (1 - gain) * errors[usual] else usual


def _rolling_error(panel: Panel, horizon: int, lookback: int, split: str) -> float:
    """The mean squared error over all stretches, infinite where one has no windows."""
    windows = Windows(panel, make_scheme(panel, horizon, lookback, split), split)
    starts, ends = np.array([parts["train"] for parts in windows.parts]).T
    series, first = windows.origins("train").T
    length = (ends - starts)[series]
    begins, stops = (first - starts[series]) / length, (first + horizon - starts[series]) / length
    total, count = np.zeros(len(PENALTIES)), 0
    for before, after in pairwise(np.linspace(0.5, 1, STRETCHES + 1)):
        known = _part(windows, stops <= before, lookback)
        ahead = _part(windows, (begins >= before) & (begins < after), lookback)
        if known is None or ahead is None:
            return float("inf")
        errors, values = squared_errors(known, ahead)
        total, count = total + errors, count + values
    return float(total.min() / max(count, 1))


def _part(windows: Windows, chosen: np.ndarray, lookback: int) -> Windows | None:
    """The same windows, of which only these are for training; None if there are none."""
    origins = windows.origins("train")[chosen]
    if not len(origins):
        return None
    part = copy.copy(windows)
    part.__dict__["_origins"] = {"train": origins, "valid": origins, "test": origins}
    return part.sampled("train", max(int(EFFORT / lookback**2), FULL * lookback))
