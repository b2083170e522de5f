"""What contenders will have reached by the end of a training, judged by their learning curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

Curve = Sequence[tuple[float, float]]  # (time, score) of each validation

# Of a straight line over the logarithm of time, the share that curves follow to the end: with a
# Mogrifier-GRU after 3%, 6% and 12% of a training 0.31, 0.43 and 0.46 on pydoc, 1.3, 1.4 and 0.3 on
# Tiny Shakespeare.
FOLLOWED = 0.4
# The share to which a contender follows its own slope instead of that of all, by how much of the
# training is over: after 3% an LSTM that had learned little was predicted to end 40% below a GRU.
OWN, MOST = 2.0, 0.25
NARROWEST = 0.01  # half the width of an interval, as a share of the score
LEAST = 1e-9  # of a score, so that it has a logarithm


@dataclass(frozen=True)
class Forecast:
    """The score that is predicted for the end of a training, with an interval."""

    score: float
    low: float
    high: float


def forecasts(curves: Sequence[Curve], end: float) -> list[Forecast]:
    """Predict the score at `end` of contenders on the same data, from their learning curves.

        ln score(end) = ln score + ln(end / t) · (FOLLOWED · s̄ + w · (s - s̄)),
        w = min(OWN · t / end, MOST)

    s is the slope of a contender's last validations, of logarithms over logarithms, s̄ the median of
    all: how much is still to be learned depends on the data more than on the contender, and a slope
    that is measured early says little. A curve that rises counts as level. The interval is as wide
    as validations scatter around their line, and at least 1%. Scores are positive.

    >>> [round(each.score, 2) for each in forecasts([[(1, 3.0), (2, 2.8), (4, 2.6)]], 64)]
    [2.32]
    """
    lines = [_line(curve) for curve in curves]
    slopes = [min(slope, 0.0) for slope, _ in lines if math.isfinite(slope)]
    shared = median(slopes) if slopes else 0.0
    return [_forecast(curve, *line, shared, end) for curve, line in zip(curves, lines, strict=True)]


def _forecast(curve: Curve, slope: float, scatter: float, shared: float, end: float) -> Forecast:
    if not curve or not math.isfinite(curve[-1][1]):
        return Forecast(math.inf, math.inf, math.inf)
    time, last = curve[-1]
    ahead = max(math.log(end / time), 0.0)
    own = min(slope, 0.0) if math.isfinite(slope) else shared
    followed = FOLLOWED * shared + min(OWN * time / end, MOST) * (own - shared)
    gain, width = ahead * min(followed, 0.0), max(2 * scatter, NARROWEST) * (1 + 0.25 * ahead)
    return Forecast(*(last * math.exp(gain + by) for by in (0.0, -width, width)))


def _line(curve: Curve) -> tuple[float, float]:
    """The slope of the last validations, of logarithms over logarithms, and how they scatter."""
    recent = curve[-max(3, len(curve) // 2) :]
    if len(recent) < 2 or not all(math.isfinite(score) for _, score in recent):
        return math.nan, 0.0
    xs, ys = [math.log(t) for t, _ in recent], [math.log(max(score, LEAST)) for _, score in recent]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((a - x) ** 2 for a in xs) or 1.0
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread
    residuals = [b - y - slope * (a - x) for a, b in zip(xs, ys, strict=True)]
    return slope, math.sqrt(sum(r * r for r in residuals) / len(residuals))
