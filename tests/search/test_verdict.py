"""A verdict compares like with like, and says what the numbers say."""

import os
import signal

import pytest

from metarnn.search import known
from metarnn.search.verdict import RIVALS, Contender, Row, Verdict, VerdictOptions, compare, judge
from metarnn.tasks.task import Measure
from metarnn.training import Settings
from metarnn.training.interrupt import Interrupted
from tests.helpers import planted

OPTIONS = VerdictOptions(seeds=2, verdict_steps=4)
SETTINGS = Settings(batch=16, lr=0.01, validate_every=2)
UNITS = {"found": known.GRU_BEFORE.cell, **RIVALS}


@pytest.mark.medium
def test_all_units_have_nearly_the_same_size_and_a_score_for_each_seed():
    verdict = judge(planted.problem(sequences=32), UNITS, 600, SETTINGS, OPTIONS)
    assert [row.name for row in verdict.rows] == ["found", "lstm", "gru"]
    for row in verdict.rows:
        assert 480 < row.parameters <= 600
        first, second = row.values("mse")
        assert first != second
    head, *lines = verdict.table()
    assert head == ["unit", "width", "parameters", "mse"]
    assert all("±" in line[-1] for line in lines)
    assert len(verdict.words()) == 3


@pytest.mark.medium
def test_a_verdict_that_was_interrupted_goes_on_to_the_same_table(tmp_path, monkeypatch):
    whole = judge(planted.problem(sequences=32), UNITS, 600, SETTINGS, OPTIONS)
    calls, loss = [], planted.Planted.loss

    def signalled(self, model, batch, carried=None):
        calls.append(1)
        if len(calls) == 14:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss(self, model, batch, carried)

    monkeypatch.setattr(planted.Planted, "loss", signalled)
    problem = planted.problem(sequences=32)
    with pytest.raises(Interrupted):
        judge(problem, UNITS, 600, SETTINGS, OPTIONS, folder=tmp_path)
    again = judge(problem, UNITS, 600, SETTINGS, OPTIONS, folder=tmp_path)
    assert again == whole


def row(name, *scores):
    return Row(name, 8, 100, tuple({"nll": score, "tokens": 5.0} for score in scores))


def test_the_words_say_what_the_numbers_do():
    rows = (row("found", 1.0, 1.01), row("lstm", 2.0, 2.01), row("gru", 1.0, 1.02))
    verdict = Verdict((*rows, row("best of random", 0.5, 0.51)), "test", 100, Measure("nll"))
    beats, ties, loses, rule = verdict.words()
    assert "beats lstm: nll -1.0000 on test, n = 2" in beats
    assert "ties with gru" in ties
    assert "loses to best of random: nll +0.5000" in loses
    assert "two standard errors" in rule
    assert verdict.table()[0] == ["unit", "width", "parameters", "nll"]


def test_one_seed_tells_only_what_is_far_apart():
    nll, accuracy = Measure("nll", plain=0.1), Measure("accuracy", large=True, plain=0.1)
    assert compare([1.0], [1.09], nll)[0] == "is undecided against"
    assert compare([1.0], [1.2], nll)[0] == "beats"
    assert compare([0.9], [0.7], accuracy)[0] == "beats"
    assert compare([0.7], [0.9], accuracy)[0] == "loses to"
    assert compare([0.9], [0.85], accuracy)[0] == "is undecided against"


def test_two_seeds_that_happen_to_agree_are_no_proof():
    assert compare([1.0, 1.0001], [1.05, 1.0501], Measure("nll"))[0] == "ties with"
    assert compare([1.0, 1.0001, 1.0], [1.05, 1.0501, 1.05], Measure("nll"))[0] == "beats"


def test_large_is_good_where_the_task_says_so():
    ours, theirs = [0.9, 0.91, 0.92], [0.7, 0.71, 0.72]
    assert compare(ours, theirs, Measure("accuracy", large=True))[0] == "beats"
    assert compare(ours, theirs, Measure("nll"))[0] == "loses to"


def test_a_unit_that_ran_off_loses():
    assert compare([float("inf"), 1.0], [2.0, 2.1])[0] == "loses to"
    assert compare([1.0, 1.1], [float("inf"), 2.1])[0] == "beats"


@pytest.mark.medium
def test_a_planted_better_unit_wins_though_it_does_not_come_first():
    units = {"elman": Contender("elman"), "planted": Contender("cell.json", known.GRU.cell)}
    settings = Settings(batch=16, lr=0.02, validate_every=50)
    options = VerdictOptions(seeds=2, verdict_steps=100)
    verdict = judge(planted.problem(known.GRU, sequences=32), units, 600, settings, options)
    assert verdict.against("planted", "elman")[0] == "beats"
