"""Series at hand: yearly sunspot numbers, and trajectories that are generated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metarnn.tasks.forecasting.dates import Frequency
from metarnn.tasks.forecasting.series import Panel, Series, from_array
from metarnn.tasks.synthetic.dynamics import lorenz, mackey_glass, van_der_pol

FIRST_YEAR = 1749
# Yearly means of the Zürich sunspot numbers (in the public domain).
# fmt: off
SUNSPOTS = (
    80.9, 83.4, 47.7, 47.8, 30.7, 12.2, 9.6, 10.2, 32.4, 47.6, 54.0, 62.9, 85.9, 61.1,
    45.1, 36.4, 20.9, 11.4, 37.8, 69.8, 106.1, 100.8, 81.6, 66.5, 34.8, 30.6, 7.0, 19.8,
    92.5, 154.4, 125.9, 84.8, 68.1, 38.5, 22.8, 10.2, 24.1, 82.9, 132.0, 130.9, 118.1, 89.9,
    66.6, 60.0, 46.9, 41.0, 21.3, 16.0, 6.4, 4.1, 6.8, 14.5, 34.0, 45.0, 43.1, 47.5,
    42.2, 28.1, 10.0, 8.1, 2.5, 0.0, 1.4, 5.0, 12.2, 13.9, 35.4, 45.8, 41.1, 30.1,
    23.9, 15.7, 6.6, 4.0, 1.8, 8.5, 16.6, 36.3, 49.7, 64.1, 67.0, 71.0, 47.8, 27.5,
    8.5, 13.2, 56.9, 121.5, 138.3, 103.2, 85.8, 63.2, 36.8, 24.2, 10.7, 15.0, 40.1, 61.5,
    98.5, 124.3, 95.9, 66.5, 64.5, 54.2, 39.0, 20.6, 6.7, 4.3, 22.8, 54.8, 93.8, 95.7,
    77.2, 59.1, 44.0, 46.9, 30.5, 16.3, 7.3, 37.3, 73.9, 139.1, 111.2, 101.7, 66.3, 44.6,
    17.1, 11.3, 12.3, 3.4, 6.0, 32.3, 54.2, 59.7, 63.7, 63.4, 52.2, 25.4, 13.0, 6.8,
    6.3, 7.0, 35.6, 73.0, 84.9, 78.0, 64.0, 41.8, 26.2, 26.7, 12.1, 9.5, 2.7, 5.0,
    24.4, 42.0, 63.5, 53.9, 62.0, 48.5, 43.9, 18.6, 5.7, 3.6, 1.4, 9.6, 47.4, 57.1,
    103.9, 80.6, 63.6, 37.6, 26.1, 14.2, 5.8, 16.7, 44.3, 63.9, 69.0, 77.8, 65.0, 35.7,
    21.2, 11.1, 5.7, 8.7, 36.1, 79.7, 114.4, 109.6, 88.8, 67.8, 47.5, 30.6, 16.3, 9.6,
    33.1, 92.5, 149.8, 136.2, 135.1, 83.9, 69.8, 31.4, 13.8, 4.4, 37.9, 141.7, 189.8, 184.6,
    158.8, 112.3, 53.9, 37.6, 27.9, 10.2, 15.1, 46.9, 93.7, 105.9, 105.6, 104.7, 66.7, 68.9,
    38.1, 34.4, 15.5, 12.5, 27.5, 92.7, 155.3, 154.7, 140.4, 116.3, 66.6,
)
# fmt: on


def sunspots() -> Panel:
    values = np.array(SUNSPOTS)[:, None]
    none, start = np.zeros((len(values), 0)), np.datetime64(f"{FIRST_YEAR}-01-01", "s")
    return Panel((Series("sunspots", values, none, none, start),), frequency=Frequency(months=12))


def shops() -> Panel:
    """Sales of twelve shops of three kinds, with a weekly pattern, a trend and days of a sale that
    are known ahead; the kind of a shop is said."""
    random, kinds, steps = np.random.default_rng(3), 3, 700
    week = random.normal(0, 1, (kinds, 7))
    made, static = [], []
    for shop in range(12):
        kind, days = shop % kinds, np.arange(steps)
        sale = (random.random(steps + 60) < 0.08).astype(np.float64)
        level = random.uniform(20, 200)
        wave = 1 + 0.15 * week[kind][days % 7] + 0.4 * sale[:steps] * (1 + kind) / 2
        wave = wave * (1 + random.normal(0, 0.0005) * days)
        values = level * wave * np.exp(random.normal(0, 0.05, steps))
        start = np.datetime64("2020-01-01", "s")
        made.append(
            Series(f"shop {shop}", values[:, None], sale[:, None], np.zeros((steps, 0)), start)
        )
        static.append([float(kind == k) for k in range(kinds)])
    return Panel(tuple(made), frequency=Frequency(86400), static=np.array(static))


EMBEDDED: dict[str, Callable[[], Panel]] = {
    "sunspots": sunspots,
    "lorenz": lambda: from_array(lorenz(4000), ["x", "y", "z"], joint=True),
    "mackey-glass": lambda: from_array(mackey_glass(3000), ["x"]),
    "van-der-pol": lambda: from_array(van_der_pol(3000), ["x", "y"], joint=True),
    "shops": shops,
}
