"""The look-back that a linear regression chooses."""

from itertools import pairwise

import numpy as np
import pytest

from metarnn.tasks.forecasting import load_panel
from metarnn.tasks.forecasting.linear import PENALTIES
from metarnn.tasks.forecasting.lookback import STRETCHES, _rolling_error, choose_lookback
from metarnn.tasks.forecasting.windows import make_scheme


def written(tmp_path, values):
    path = tmp_path / "series.csv"
    days = np.datetime64("2020-01-01") + np.arange(len(values))
    rows = "".join(f"{day},{value}\n" for day, value in zip(days, values, strict=True))
    path.write_text(f"date,value\n{rows}")
    return load_panel(str(path))


def test_the_error_is_that_of_regressions_solved_one_by_one():
    panel, lookback, horizon = load_panel("sunspots"), 11, 5
    scheme = make_scheme(panel, horizon, lookback)
    values = panel.series[0].values[:, 0]
    end = int(0.7 * len(values))
    scaled = (values - scheme.mean[0][0]) / scheme.std[0][0]
    origins = np.arange(lookback, end - horizon + 1)
    last = scaled[origins - 1][:, None]
    x = np.stack([scaled[t - lookback : t] for t in origins]) - last
    x = np.concatenate([x, np.ones((len(x), 1))], 1)
    y = np.stack([scaled[t : t + horizon] for t in origins]) - last
    totals, count = np.zeros(len(PENALTIES)), 0
    edges = np.linspace(0.5, 1, STRETCHES + 1) * end
    for before, after in pairwise(edges):
        known, ahead = origins + horizon <= before, (origins >= before) & (origins < after)
        for k, penalty in enumerate(PENALTIES):
            gram = x[known].T @ x[known] + penalty * known.sum() * np.eye(x.shape[1])
            weight = np.linalg.solve(gram, x[known].T @ y[known])
            totals[k] += np.square(x[ahead] @ weight - y[ahead]).sum()
        count += y[ahead].size
    expected = totals.min() / count
    assert _rolling_error(panel, horizon, lookback, "70/10/20") == pytest.approx(expected, rel=1e-4)


def test_few_data_with_a_short_memory_are_looked_at_from_near(tmp_path):
    """Of a process whose next step depends on the last one alone, a longer look-back tells nothing
    and only has more weights to fit."""
    steps = np.random.default_rng(0).normal(size=200)
    for t in range(1, 200):
        steps[t] += 0.9 * steps[t - 1]
    panel = written(tmp_path, steps.cumsum())
    assert choose_lookback(panel, 7) < make_scheme(panel, 7).lookback


def test_what_repeats_after_long_is_looked_at_from_far(tmp_path):
    pattern = np.random.default_rng(0).normal(size=80)
    values = np.tile(pattern, 12) + 0.1 * np.random.default_rng(1).normal(size=960)
    panel = written(tmp_path, values)
    usual = make_scheme(panel, 7).lookback
    assert choose_lookback(panel, 7) == 2 * usual
    assert usual < 80 <= 2 * usual


def test_validation_and_test_data_have_no_part_in_the_choice(tmp_path):
    values = np.random.default_rng(0).normal(size=300).cumsum()
    chosen = choose_lookback(written(tmp_path, values), 7)
    values[210:] = 1e6 * np.random.default_rng(2).normal(size=90)
    assert choose_lookback(written(tmp_path, values), 7) == chosen
