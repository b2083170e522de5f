"""A refit trains on training and validation data, in every task, and on nothing else."""

import numpy as np
import pytest
import torch

from metarnn.runs import tasks
from metarnn.tasks import forecasting
from metarnn.tasks.forecasting.linear import fit
from metarnn.tasks.forecasting.part import joined
from metarnn.tasks.split import Split
from metarnn.training import Settings, Trainer, config

DATA = {
    "lm": {"data": "pydoc", "width": 4, "embedding": 4, "length": 16, "batch": 4},
    "translation": {"data": "dates", "width": 4, "embedding": 4, "batch": 8},
    "classification": {"data": "visits", "width": 4, "batch": 8, "split": "64/16/20"},
    "forecasting": {"data": "sunspots", "width": 4, "batch": 8, "members": 1},
}


def job(name, **changes):
    entry = tasks.find(name)
    preset = next(iter(entry.presets.values()))
    keys = {**preset, **DATA[name], "device": "cpu", "engine": "eager", **changes}
    settings = config.from_keys(entry.kind, keys, "a test")
    return entry.job(settings, entry.load(settings))


def examples(name, task, part):
    """What a task trains on, or what a split of it has, as a set that can be compared."""
    if name == "lm":
        tokens = task.training if part == "training" else task.corpus[part].tokens
        return [tokens.values[a:b].tobytes() for a, b in zip(tokens.bounds, tokens.bounds[1:])]  # noqa: B905
    if name == "translation":
        pairs = (task.training if part == "training" else task.corpus[part]).pairs
        return list(zip(pairs.source, pairs.target, strict=True))
    if name == "classification":
        chosen = task.training if part == "training" else task.data[part]
        return [x.tobytes() for x in chosen.x]
    windows, split = (task.training, "train") if part == "training" else (task.windows, part)
    return [int(start) for _, start in windows.origins(split)]


@pytest.mark.parametrize("name", DATA)
def test_a_refit_trains_on_training_and_validation_data_alone(name):
    plain, refit = job(name).task, job(name, refit=True).task
    train, valid, test = (examples(name, plain, part) for part in ("train", "valid", "test"))
    assert examples(name, plain, "training") == train
    assert set(examples(name, refit, "training")) >= {*train, *valid}
    assert not set(examples(name, refit, "training")) & (set(test) - {*train, *valid})
    if name == "forecasting":  # windows whose targets lie in both are there, too
        horizon = refit.windows.scheme.horizon
        assert max(examples(name, refit, "training")) + horizon <= min(test)
    else:
        assert len(examples(name, refit, "training")) == len(train) + len(valid)
    assert refit.batches_per_epoch > plain.batches_per_epoch
    assert Split.of(plain) == Split.of(refit)


@pytest.mark.parametrize("name", DATA)
def test_a_sample_of_the_validation_data_leaves_the_training_as_it_is(name):
    task = job(name, refit=True).task
    small = task.sampled("valid", 8)
    assert small.amount("valid") < task.amount("valid")
    assert examples(name, small, "training") == examples(name, task, "training")


def test_a_refit_keeps_its_last_weights():
    """Those score best of all where validation gets worse all the time."""
    for refit in (False, True):
        made = job("forecasting", refit=refit, steps=4, validate_every=1, lr=0.0, warmup=0)
        scores = iter([1.0, 2.0, 3.0, 4.0])
        made.task.__class__.evaluate, evaluate = (
            lambda self, model, split: {"crps": next(scores)},  # noqa: B023
            made.task.__class__.evaluate,
        )
        try:
            settings = Settings(**tasks.chosen(Settings, made.config))
            assert Trainer(made.task, made.model, settings).fit().best_step == (4 if refit else 1)
        finally:
            made.task.__class__.evaluate = evaluate


def test_the_linear_part_of_a_refit_has_the_penalty_that_validation_chose():
    """Its own would be the smallest: it has seen the validation windows."""
    windows = forecasting.load("sunspots", horizon=4, lookback=80)
    weights = fit(windows, joined(windows))
    assert not torch.equal(weights, fit(windows))
    assert weights.norm() < 0.1 * fit(joined(windows)).norm()
    np.testing.assert_allclose(fit(windows, windows), fit(windows))
