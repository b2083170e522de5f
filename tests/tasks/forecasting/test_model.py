"""The forecaster, its baselines and scores."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from metarnn.tasks.forecasting import (
    ForecasterOptions,
    ForecastingTask,
    Panel,
    Series,
    Windows,
    baselines,
    build_model,
    from_array,
    load,
    make_scheme,
)
from metarnn.tasks.forecasting.future import future
from metarnn.tasks.forecasting.linear import apply, fit
from metarnn.tasks.forecasting.metrics import usual_error
from metarnn.tasks.pretrained import from_pretrained, save_pretrained
from metarnn.tasks.rules import simple_rules
from metarnn.tasks.task import Shard
from metarnn.training import Settings, Trainer


def waves(steps=200, channels=2, **more):
    t = np.arange(steps)[:, None]
    values = np.sin(2 * np.pi * t / np.array([8.0, 12.0])[:channels]) + 5
    return from_array(values, ["a", "b"][:channels], **more)


def windows_of(panel, horizon=6, lookback=24):
    return Windows(panel, make_scheme(panel, horizon, lookback))


def model_for(windows, **options):
    torch.manual_seed(0)
    model = build_model(windows.scheme, ForecasterOptions(**{"width": 6, **options})).eval()
    torch.nn.init.normal_(model.head.weight, std=0.3)
    return model


CASES = [
    pytest.param(
        {"strategy": s, "likelihood": lik, "context": c},
        id=f"{s}-{lik}-{c}",
        marks=[pytest.mark.medium] if c == "hyper" else [],
    )
    for s, lik in [
        ("direct", "quantiles"), ("direct", "student"), ("direct", "mse"),
        ("recursive", "mae"), ("recursive", "gaussian"),
    ]
    for c in ("none", "embedding", "hyper")
    if lik != "student" or c == "hyper"  # its quantiles take seconds
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_forecasts_never_see_the_future(case):
    windows = windows_of(waves())
    model = model_for(windows, **case)
    window = windows.at(windows.origins("test")[:3])
    torch.manual_seed(0)
    told = model.forecast(window)
    torch.manual_seed(0)
    other = model.forecast(replace(window, y=torch.full_like(window.y, torch.nan)))
    torch.testing.assert_close(told.mean, other.mean)
    assert told.mean.shape == window.y.shape
    assert torch.isfinite(told.mean).all()


@pytest.mark.parametrize("patch", [1, 3])
def test_with_the_truth_fed_back_no_step_sees_what_it_tells(patch):
    windows = windows_of(waves(), horizon=6, lookback=12)
    model = model_for(windows, strategy="recursive", likelihood="mse", patch=patch)
    window = windows.at(windows.origins("test")[:2])
    (told,) = model(window)
    assert told.shape[:-1] == model.targets(window).shape
    for t in range(6):
        changed = window.y.clone()
        changed[t:] += 10
        begin = 12 - patch + t // patch * patch  # the first step whose inputs may differ
        (after,) = model(replace(window, y=changed))
        torch.testing.assert_close(told[: begin + patch], after[: begin + patch])


def test_feeding_back_is_the_same_as_telling_step_by_step():
    windows = windows_of(waves(), horizon=3, lookback=9)
    model = model_for(windows, strategy="recursive", likelihood="mse")
    window = windows.at(windows.origins("test")[:2])
    free = model.forecast(window).mean
    y = torch.zeros_like(window.y)
    for t in range(3):
        y[t] = model(replace(window, y=y))[0, 8 + t, ..., 0]
    torch.testing.assert_close(free, y)


def test_the_linear_part_alone_is_the_linear_baseline():
    windows = windows_of(waves(joint=True))
    model = build_model(windows.scheme, ForecasterOptions(width=6, likelihood="mse"))
    model.start(windows)
    model.head.bias.data.zero_()
    window = windows.at(windows.origins("test"))
    expected = baselines(windows)["linear"](window)
    torch.testing.assert_close(model.forecast(window).mean, expected)


@pytest.mark.parametrize("strategy", ["direct", "recursive"])
def test_the_forecast_of_several_members_is_the_mean_of_theirs(strategy):
    windows = windows_of(waves())
    likelihood = "mse" if strategy == "recursive" else "quantiles"
    model = model_for(windows, strategy=strategy, likelihood=likelihood, members=3)
    model.start(windows)
    for other in model.members[1:]:
        torch.nn.init.normal_(other.head.weight, std=0.3)
    window = windows.at(windows.origins("test")[:4])
    alone = [other.forecast(window).mean for other in model.members[1:]]
    first = model_for(windows, strategy=strategy, likelihood=likelihood)
    first.load_state_dict({k: v for k, v in model.state_dict().items() if "others" not in k})
    expected = torch.stack([first.forecast(window).mean, *alone]).mean(0)
    torch.testing.assert_close(model.forecast(window).mean, expected)


def test_each_member_learns_by_its_own_error():
    windows = windows_of(waves())
    task = ForecastingTask(windows, batch=4)
    model = model_for(windows, likelihood="mse", members=2)
    window = next(task.batches(Shard()))
    p, y = model(window)[..., 0], model.targets(window)
    expected = torch.stack([(p[k] - y).square().mean() for k in range(2)]).mean()
    torch.testing.assert_close(task.loss(model, window).value, expected)


@pytest.mark.parametrize("joint", [False, True])
def test_the_linear_map_finds_what_is_linear(joint):
    windows = windows_of(waves(joint=joint))
    window = windows.at(windows.origins("test"))
    torch.testing.assert_close(apply(fit(windows), window), window.y, atol=0.02, rtol=0)


def test_naive_rules_are_what_they_are_called():
    windows = windows_of(from_array(np.arange(100.0)[:, None] % 7, ["a"]))
    assert windows.scheme.season == 7
    window = windows.at(windows.origins("test")[:4])
    rules = baselines(windows)
    torch.testing.assert_close(rules["seasonal naive (7)"](window), window.y)
    assert (rules["naive"](window) == window.x[-1]).all()


def test_scores_of_a_forecast_that_is_always_off_by_one():
    values = np.tile([[10.0], [20.0]], (60, 1))
    windows = windows_of(from_array(values, ["a"]), 4, 10)
    task = ForecastingTask(windows)
    std = windows.scheme.std[0][0]
    found = task.backtest(lambda window: window.y + 1 / std, "test")
    assert found["mae"] == pytest.approx(1 / std, rel=1e-5)
    assert found["mse"] == pytest.approx(1 / std**2, rel=1e-5)
    assert found["smape"] == pytest.approx((2 / 21 + 2 / 41) / 2, rel=1e-3)
    # In the training part x_t = x_{t-2}, so the usual error is that of no season: 1 stands in.
    assert usual_error(values, 1) == pytest.approx(10)
    assert found["windows"] == 24 - 4 + 1


def test_missing_targets_count_nowhere():
    panel = waves(channels=1)
    holes = panel.series[0].values.copy()
    holes[::3] = np.nan
    windows = windows_of(Panel((replace(panel.series[0], values=holes),)))
    task, model = ForecastingTask(windows, batch=8), model_for(windows)
    loss = task.loss(model, next(task.batches(Shard())))
    assert torch.isfinite(loss.value)
    assert loss.count == 8 * 4
    assert np.isfinite(list(task.evaluate(model, "test").values())).all()


def test_what_is_known_ahead_reaches_the_forecast_and_the_rest_does_not():
    random = np.random.default_rng(0)
    known, observed = random.random((160, 1)), random.random((150, 1))
    one = Series("a", random.random((150, 1)), known, observed)
    windows = windows_of(Panel((one,)))
    model = model_for(windows)
    window = windows.at(windows.origins("test")[:2])
    ahead = window.known.clone()
    ahead[-1] += 1
    told = model.forecast(window).mean
    assert not torch.equal(told, model.forecast(replace(window, known=ahead)).mean)
    with pytest.raises(ValueError, match="future values"):
        model_for(windows, strategy="recursive", likelihood="mse")
    with pytest.raises(ValueError, match=r"known='\d+ steps short': .* Add rows at the end"):
        future(model, Panel((replace(one, known=known[:151]),)))
    short = replace(one, values=one.values[:3], known=known[:13], observed=observed[:3])
    with pytest.raises(ValueError, match="at least the"):
        future(model, Panel((short,)))


def test_a_bidirectional_layer_is_refused_where_forecasts_are_fed_back():
    scheme = windows_of(waves()).scheme
    with pytest.raises(ValueError, match="still to be told"):
        build_model(
            scheme,
            ForecasterOptions(strategy="recursive", likelihood="mse", bidirectional=True),
        )
    with pytest.raises(ValueError, match="quantiles of one step"):
        build_model(scheme, ForecasterOptions(strategy="recursive"))
    assert model_for(windows_of(waves()), bidirectional=True)


def test_the_future_is_told_in_units_and_dates_of_the_series(tmp_path):
    windows = load("sunspots", horizon=3)
    model = model_for(windows)
    model.start(windows)
    rows = future(model, windows.panel)
    assert [row[2] for row in rows] == ["1984-01-01", "1985-01-01", "1986-01-01"]
    for _, _, _, value, low, middle, high in rows:
        assert low < middle < high
        assert -100 < value < 300
    save_pretrained(model, tmp_path)
    again = from_pretrained(tmp_path)
    assert future(again, windows.panel) == rows  # type: ignore[arg-type]


def test_series_are_found_by_their_names_whatever_their_order():
    windows = load("shops", horizon=7)
    model = model_for(windows, context="hyper")
    panel = windows.panel
    rows = {row[:3]: row[3] for row in future(model, panel)}
    turned = replace(panel, series=panel.series[::-1])
    for row in future(model, turned):
        assert row[3] == pytest.approx(rows[row[:3]], rel=1e-4)
    with pytest.raises(ValueError, match="trained on"):
        future(model, replace(panel, series=(replace(panel.series[0], name="other"),)))


@pytest.mark.medium
@pytest.mark.parametrize("strategy", ["direct", pytest.param("recursive", marks=pytest.mark.slow)])
def test_lorenz_is_told_better_than_by_every_baseline(strategy):
    windows = load("lorenz", horizon=10, lookback=40)
    likelihood = "mse" if strategy == "recursive" else "quantiles"
    options = ForecasterOptions(width=48, strategy=strategy, likelihood=likelihood)
    model = build_model(windows.scheme, options)
    model.start(windows)
    task = ForecastingTask(windows, batch=64, stride=3)
    Trainer(task, model, Settings(batch=64, steps=250, lr=4e-3, schedule="cosine")).fit()
    found = task.evaluate(model.eval(), "test")
    rules = simple_rules(task, "test")
    assert rules is not None
    for name, scores in rules.scores.items():
        assert found["mse"] < scores["mse"], name
