"""Limits, early stop, mixed precision, metrics: what the loop promises around each update."""

import importlib.util
import json
import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from metarnn.training import Settings, Trainer
from metarnn.training.metrics import read_lines
from metarnn.training.position import Position
from metarnn.training.progress import Lines, Report
from tests.helpers.toy import QUICK, ToyModel, ToyTask, train


def test_epochs_are_passes_over_the_data():
    _, result = train(None, replace(QUICK, steps=0, epochs=2.5))
    assert (result.reason, result.step) == ("epochs", 25)


def test_minutes_are_minutes():
    _, result = train(None, replace(QUICK, steps=0, minutes=0.5 / 60))
    assert result.reason == "minutes"
    assert 0.5 <= result.elapsed < 5


def test_the_first_limit_counts():
    _, result = train(None, replace(QUICK, steps=7, epochs=3.0))
    assert (result.reason, result.step) == ("steps", 7)


def test_schedules_follow_the_clock_only_where_nothing_else_ends_the_training():
    at = Position(step=5, elapsed=30.0)
    for settings, share in (
        (Settings(minutes=1.0), 0.5),
        (Settings(minutes=1.0, steps=50), 0.1),
        (Settings(minutes=1.0, epochs=2.0), 0.25),
        (Settings(steps=50, epochs=2.0), 0.1),
        (Settings(patience=3), 0.0),
    ):
        assert at.scheduled(settings, per_epoch=10) == share
        assert at.done(settings, per_epoch=10) == max(at.shares(settings, 10).values(), default=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_is_asked_for_is_used_or_refused():
    with pytest.raises(ValueError, match="no CUDA device"):
        Trainer(ToyTask(QUICK.batch), ToyModel(), replace(QUICK, device="cuda"))


def test_no_limit_at_all_is_refused():
    with pytest.raises(ValueError, match="a limit"):
        train(None, replace(QUICK, steps=0))


def test_training_stops_when_validation_no_longer_improves_and_keeps_the_best():
    class Worse(ToyTask):
        scores = iter([3.0, 2.0, 2.5, 2.1, 2.2, 1.0])

        def evaluate(self, model, split="valid"):
            return {"nll": next(self.scores)}

    settings = replace(QUICK, steps=0, patience=3)
    trainer, result = train(None, settings, task=Worse())
    assert (result.reason, result.step) == ("patience", 50)
    assert (result.best, result.best_step) == (2.0, 20)
    early, _ = train(None, replace(QUICK, steps=20))
    for name, w in early.model.state_dict().items():
        assert w.equal(trainer.model.state_dict()[name])


def test_a_score_that_is_not_a_number_is_never_the_best():
    class Broken(ToyTask):
        scores = iter([3.0, math.nan, math.nan, math.nan])

        def evaluate(self, model, split="valid"):
            return {"nll": next(self.scores)}

    _, result = train(None, replace(QUICK, steps=30), task=Broken())
    assert (result.best, result.best_step) == (3.0, 10)


def test_mixed_precision_learns_and_keeps_weights_in_single():
    exact, _ = train(None, dropout=0.0)
    mixed, result = train(None, replace(QUICK, precision="bfloat16"), dropout=0.0)
    assert all(w.dtype == torch.float32 for w in mixed.model.parameters())
    assert result.best == pytest.approx(exact.at.best, rel=0.05)
    assert result.best != exact.at.best


def test_metrics_are_means_over_the_steps_between_two_lines(tmp_path):
    for every in (1, 4):
        train(tmp_path / str(every), replace(QUICK, log_every=every, steps=8))

    def losses(out):
        lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        return {line["step"]: line for line in lines if "loss" in line}

    single, four = losses(tmp_path / "1"), losses(tmp_path / "4")
    assert list(four) == [4, 8]
    mean = sum(single[step]["loss"] for step in (5, 6, 7, 8)) / 4
    assert four[8]["loss"] == pytest.approx(mean)
    assert four[8]["perplexity"] == pytest.approx(math.exp(four[8]["nll"]))
    assert four[8]["tokens"] == 8 * 5 * QUICK.batch
    assert four[8]["lr"] == QUICK.lr


def test_tensorboard_gets_the_numbers_of_metrics(tmp_path, monkeypatch):
    if importlib.util.find_spec("tensorboard") is None:
        with pytest.raises(ValueError, match="pip install tensorboard"):
            train(None, replace(QUICK, tensorboard=True))

    class Writer:
        def __init__(self, folder):
            assert folder == str(tmp_path / "run" / "tensorboard")
            self.add_scalar = lambda name, value, step: seen.append((step, name, value))
            self.close = lambda: None

    seen = []
    fake = SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    train(tmp_path / "run", replace(QUICK, steps=10, tensorboard=True))
    lines = read_lines(tmp_path / "run" / "metrics.jsonl")
    written = [(n["step"], name, n[name]) for n in lines for name in n if name != "step"]
    assert seen == written


def test_the_learning_rate_follows_the_schedule_and_the_batch(tmp_path):
    class Uneven(ToyTask):
        def loss(self, model, batch, carried=None):
            loss = super().loss(model, batch, carried)
            loss.scale = 0.5 if batch[2] == 3 else 1.0
            return loss

    settings = replace(QUICK, log_every=1, steps=10, schedule="linear", warmup=2)
    train(tmp_path / "run", settings, task=Uneven())
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    rates = [line["lr"] / settings.lr for line in lines if "lr" in line]
    expected = [1 / 2, 1, 1, 7 / 8 / 2, *(k / 8 for k in (6, 5, 4, 3, 2, 1))]
    assert rates == pytest.approx(expected)


def test_plain_lines_are_few_and_tell_what_is_left(capsys):
    lines = Lines()
    for step in range(1, 1001):
        lines.show(Report(step, step / 1000, step / 10, 2500.0, {"loss": 1.5, "nll": 1.5}))
    first, last = capsys.readouterr().err.splitlines()
    assert first.split() == ["step", "1", "loss", "1.5", "2.5k", "tokens/s", "1:40", "left"]
    assert last.endswith("0:00 left")


def test_trainings_that_take_turns_end_as_each_alone():
    """However often they are paused: dropout of one draws nothing from the other."""

    def trainer(seed):
        torch.manual_seed(seed)
        return Trainer(ToyTask(), ToyModel(), replace(QUICK, steps=9, seed=seed))

    alone = [trainer(seed) for seed in (0, 1)]
    for each in alone:
        each.fit()
    turns = [trainer(seed) for seed in (0, 1)]
    for step in (2, 3, 7):
        for each in turns:
            result = each.fit(lambda at, step=step: at.step >= step)
            assert (result.reason, result.step) == ("paused", step)
            each.validate()
    for each, other in zip(turns, alone, strict=True):
        assert each.fit().reason == "steps"
        for ours, theirs in zip(each.model.parameters(), other.model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_a_training_that_is_paused_can_be_prolonged():
    torch.manual_seed(0)
    trainer = Trainer(ToyTask(), ToyModel(), replace(QUICK, steps=5))
    trainer.fit(lambda at: at.step >= 3)
    trainer.limit(steps=8)
    assert (trainer.fit().reason, trainer.at.step) == ("steps", 8)


def test_within_a_margin_of_the_lowest_score_later_weights_are_kept():
    at = Position()
    better = []
    for step, score in enumerate([0.5, 0.004, 0.001, 0.003, 0.02, 0.005], 1):
        at.step = step
        better.append(at.judge(score, 0.005))
    assert better == [True, True, True, True, False, True]
    assert (at.best, at.best_step) == (0.005, 6)
    assert [Position().judge(0.5), at.judge(0.005), at.judge(0.0049)] == [True, False, True]
    at = Position()
    assert [at.judge(score, share=0.01) for score in (1.0, 1.009, 1.011)] == [True, True, False]
