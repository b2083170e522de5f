"""Scores of several seeds, a row of dots for each unit: what differs by chance is seen to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from metarnn.report.markup import Markup, tag
from metarnn.report.plot import COLOURS, nice, short

WIDTH, ROW, RIGHT, TOP, BOTTOM = 720.0, 34.0, 24.0, 6.0, 40.0
LETTER = 10.6  # of the 20 pixels that letters have on a phone


def strip(named: Mapping[str, Sequence[float]], metric: str) -> Markup:
    """Rows of dots over one axis, with a bar at the mean of each row; empty without numbers."""
    rows = {name: [v for v in values if math.isfinite(v)] for name, values in named.items()}
    every = [v for values in rows.values() for v in values]
    if not every:
        return Markup("")
    gap = (max(every) - min(every)) or abs(max(every)) or 1.0
    low, high = min(every) - 0.06 * gap, max(every) + 0.06 * gap
    left = 20 + LETTER * max(map(len, rows))
    height = TOP + ROW * len(rows) + BOTTOM

    def x(value: float) -> str:
        return f"{left + (WIDTH - left - RIGHT) * (value - low) / (high - low):.1f}"

    parts = [tag("title", f"{metric} of each seed"), tag("desc", _words(rows, metric))]
    for value in nice(low, high, 5):
        end = height - BOTTOM
        parts.append(tag("path", d=f"M{x(value)},{TOP} V{end:.1f}", cls="grid"))
        parts.append(_text(x(value), end + 18, short(value)))
    parts.append(_text(f"{(left + WIDTH - RIGHT) / 2:.1f}", height - 4, metric))
    for k, (name, values) in enumerate(rows.items()):
        y = TOP + ROW * (k + 0.5)
        parts.append(_text(f"{left - 12:.1f}", y + 4, name, "end", "row"))
        if not values:
            parts.append(_text(f"{left + 4:.1f}", y + 4, "not finite", "start"))
            continue
        mean = fmean(values)
        parts.append(tag("path", d=f"M{x(mean)},{y - 10:.1f} v20", cls=f"line c{k % COLOURS}"))
        for seed, value in enumerate(values):
            said = tag("title", f"{name}, seed {seed + 1}: {value:.4f} (mean {mean:.4f})")
            at = {"cx": x(value), "cy": f"{y:.1f}", "r": "5"}
            parts.append(tag("circle", said, cls=f"dot c{k % COLOURS}", **at))
    label = f"{metric} of each unit and seed"
    picture = tag("svg", parts, viewBox=f"0 0 {WIDTH:.0f} {height:.0f}", role="img",
                  aria_label=label, tabindex="0")  # fmt: skip
    tip = tag("output", cls="tip", aria_live="polite", hidden=True)
    return tag("div", tag("div", picture, data_columns="1"), tip, cls="plot")


def _text(x: str, y: float, text: str, anchor: str = "middle", cls: str = "tick") -> Markup:
    return tag("text", text, x=x, y=f"{y:.1f}", text_anchor=anchor, cls=cls)


def _words(rows: Mapping[str, Sequence[float]], metric: str) -> str:
    means = (f"{name} {fmean(v):.4f}" if v else f"{name} not finite" for name, v in rows.items())
    return f"Means of {metric}: {', '.join(means)}."
