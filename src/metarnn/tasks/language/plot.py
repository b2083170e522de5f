"""Zipf curves as a picture and as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from metarnn.graph.vector import COLORS, LINE, SMALL, Canvas
from metarnn.tasks.language.statistics import Grams, log_ranks

MARKS = "123456789"


def zipf_svg(grams: Sequence[Grams], title: str) -> str:
    """Counts over ranks of n-grams, both logarithmic, with the slope of each."""
    width, height, left, top, right, bottom = 640.0, 440.0, 70.0, 50.0, 20.0, 60.0
    decades_x, decades_y = _decades(grams)

    def place(rank: float, count: float) -> tuple[float, float]:
        x = left + math.log10(rank) / decades_x * (width - left - right)
        y = height - bottom - math.log10(count) / decades_y * (height - top - bottom)
        return x, y

    canvas = Canvas()
    canvas.text(width / 2, 22, title)
    for exponent in range(decades_x + 1):
        (x, low), (_, high) = place(10**exponent, 1), place(10**exponent, 10**decades_y)
        canvas.rule((x, low), (x, high), "#e9ecef")
        canvas.text(x, low + 16, _power(exponent), SMALL)
    for exponent in range(decades_y + 1):
        (low, y), (high, _) = place(1, 10**exponent), place(10**decades_x, 10**exponent)
        canvas.rule((low, y), (high, y), "#e9ecef")
        canvas.text(low - 26, y, _power(exponent), SMALL)
    canvas.rule(place(1, 1), place(10**decades_x, 1), LINE)
    canvas.rule(place(1, 1), place(1, 10**decades_y), LINE)
    canvas.text((left + width - right) / 2, height - 18, "rank", SMALL)
    canvas.text(left - 26, top - 14, "count", SMALL)
    for gram, color in zip(grams, COLORS, strict=False):
        ranks = log_ranks(len(gram.curve)) if len(gram.curve) else np.zeros(0, np.int64)
        canvas.path([place(int(r), int(gram.curve[r - 1])) for r in ranks], color)
        y = top + 16 + 20 * gram.n
        canvas.rule((width - 240, y), (width - 215, y), color)
        slope = "" if math.isnan(gram.slope) else f", slope {gram.slope:.2f}"
        canvas.text(width - 130, y, f"{gram.n}-grams: {gram.distinct:,}{slope}", SMALL)
    return canvas.document(width, height, title)


def zipf_text(grams: Sequence[Grams], width: int = 64, height: int = 16) -> str:
    """The same for a terminal: the digit n stands where the curve of n-grams goes."""
    decades_x, decades_y = _decades(grams)
    rows = [[" "] * width for _ in range(height)]
    for gram in reversed(grams):
        for rank in log_ranks(len(gram.curve), 4 * width) if len(gram.curve) else ():
            x = round(math.log10(rank) / decades_x * (width - 1))
            y = round(math.log10(gram.curve[rank - 1]) / decades_y * (height - 1))
            rows[height - 1 - y][x] = MARKS[gram.n - 1]
    labels = {
        height - 1 - round(e / decades_y * (height - 1)): _power(e) for e in range(decades_y + 1)
    }
    lines = [f"{labels.get(k, ''):>5} │{''.join(row).rstrip()}" for k, row in enumerate(rows)]
    axis = [" "] * (width + 4)
    for e in range(decades_x + 1):
        label, x = _power(e), round(e / decades_x * (width - 1))
        axis[x : x + len(label)] = label
    lines += ["      └" + "─" * width, "       " + "".join(axis).rstrip() + "  rank"]
    return "count\n" + "\n".join(lines)


def _decades(grams: Sequence[Grams]) -> tuple[int, int]:
    ranks = max((len(gram.curve) for gram in grams), default=1)
    counts = max((int(gram.curve[0]) for gram in grams if len(gram.curve)), default=1)
    return _decade(ranks), _decade(counts)


def _decade(most: int) -> int:
    return max(math.ceil(math.log10(max(most, 1))), 1)


def _power(exponent: int) -> str:
    return "10" + str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
