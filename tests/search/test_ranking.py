"""The verdict in words says what the numbers say, whoever wins."""

import pytest

from metarnn.search import known
from metarnn.search.ranking import best_of, summary
from metarnn.search.verdict import Contender, Row, Verdict, VerdictOptions, judge
from metarnn.tasks.task import Measure
from metarnn.training import Settings
from tests.helpers import planted


def verdict(scores, measure=None, valid=None):
    """A verdict with these scores of each unit, and the same or others in validation."""
    measure = Measure("nll") if measure is None else measure
    sign = -1 if measure.large else 1
    rows = []
    for name, values in scores.items():
        best = [sign * v for v in values] if valid is None else valid[name]
        pairs = zip(values, best, strict=True)
        found = tuple({measure.name: v, "valid": b} for v, b in pairs)
        rows.append(Row(name, 8, 100, found))
    return Verdict(tuple(rows), "test", 10, measure)


def test_an_lstm_that_wins_is_named():
    found = verdict({"found": [2.0, 2.01, 2.02], "lstm": [1.0, 1.01, 1.02]})
    assert best_of(found) == "lstm"
    assert "LSTM beats the found unit (-1.0000)" in summary(found, "lstm")
    assert "best on the validation data" in summary(found, "lstm")


def test_a_high_accuracy_wins():
    accuracy = Measure("accuracy", large=True)
    found = verdict({"found": [0.9, 0.91, 0.9], "lstm": [0.6, 0.61, 0.6]}, accuracy)
    assert "beats LSTM (+0.3000)" in summary(found, best_of(found))


def test_one_seed_is_undecided_unless_the_gap_is_wide():
    near = verdict({"found": [1.0], "lstm": [1.05]})
    assert "is undecided against LSTM" in summary(near, best_of(near))
    far = verdict({"found": [1.0], "lstm": [1.5]})
    assert "beats LSTM" in summary(far, best_of(far))


def test_where_validation_chose_wrongly_the_test_says_so():
    wrong = {"found": [0.5, 0.5, 0.5], "lstm": [1.0, 1.0, 1.0]}
    found = verdict({"found": [2.0, 2.01, 2.0], "lstm": [1.0, 1.01, 1.0]}, valid=wrong)
    assert best_of(found) == "found"
    assert "loses to LSTM (+1.0000)" in summary(found, "found")
    assert "chose wrongly" in summary(found, "found")


@pytest.mark.medium
def test_a_planted_better_unit_wins_though_it_does_not_come_first():
    units = {"elman": Contender("elman"), "planted": Contender("cell.json", known.GRU.cell)}
    settings = Settings(batch=16, lr=0.02, validate_every=50)
    options = VerdictOptions(seeds=2, verdict_steps=100)
    problem = planted.problem(known.GRU, sequences=32)
    found = judge(problem, units, 600, settings, options)
    assert best_of(found) == "planted"
    assert "PLANTED beats ELMAN" in summary(found, "planted")
