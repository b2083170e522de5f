"""Simple rules: scored on the model's own examples, cached, and never stale."""

import json

import numpy as np
import pytest

from metarnn.tasks import classification, forecasting, language, translation
from metarnn.tasks.classification.baselines import dtw, minirocket, nearest
from metarnn.tasks.classification.examples import Part
from metarnn.tasks.language.ngram import KneserNey
from metarnn.tasks.rules import FILE, Rule, RuleScores, RuleSet, cache_of, simple_rules
from metarnn.tasks.task import Measure
from metarnn.tasks.translation.metrics import text_bleu
from metarnn.tasks.translation.rules import TranslationMemory


class Counting:
    """A task whose only rule counts how often it is computed."""

    def __init__(self, fingerprint="a", seconds=0.0):
        self.fingerprint, self.seconds, self.calls = fingerprint, seconds, 0

    def simple_rules(self, split, seconds):
        def score():
            self.calls += 1
            return {"error": 1.0}

        rule = Rule("rule", self.seconds, score)
        return RuleSet(self.fingerprint, Measure("error"), (rule,))


def test_a_cache_spares_the_rules_and_other_data_or_another_split_do_not_use_it(tmp_path):
    task = Counting()
    first = simple_rules(task, "test", tmp_path)
    assert simple_rules(task, "test", tmp_path) == first
    assert task.calls == 1
    simple_rules(task, "valid", tmp_path)
    task.fingerprint = "b"
    simple_rules(task, "test", tmp_path)
    assert task.calls == 3


@pytest.mark.parametrize("content", ["", "[]", '{"1 test a": 3}', "{"])
def test_a_damaged_cache_is_computed_anew(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    assert simple_rules(Counting(), "test", tmp_path).scores == {"rule": {"error": 1.0}}
    assert json.loads((tmp_path / FILE).read_text())


def test_a_rule_that_takes_too_long_is_skipped_and_said_until_there_is_time(tmp_path):
    task = Counting(seconds=30)
    short = simple_rules(task, "test", tmp_path, seconds=10)
    assert not short.scores
    assert short.notes == ("rule: skipped, it would take about 30 s",)
    assert simple_rules(task, "test", tmp_path, seconds=60).scores
    assert simple_rules(task, "test", tmp_path, seconds=10).scores  # known by now
    assert task.calls == 1


def test_runs_of_a_study_share_its_cache(tmp_path):
    (tmp_path / "learn.json").write_text("{}")
    assert cache_of(tmp_path / "verdict" / "lstm-0") == tmp_path / FILE
    assert cache_of(tmp_path / "apart") == tmp_path / "apart" / FILE


def test_a_task_without_rules_has_none(tmp_path):
    assert simple_rules(object(), "test", tmp_path) is None


@pytest.mark.parametrize(
    ("large", "value", "outcome"),
    [(False, 2.0, "beats"), (False, 1.0, "ties with"), (False, 0.5, "loses to"),
     (True, 0.5, "beats"), (True, 2.0, "loses to"), (False, float("nan"), "beats")],
)  # fmt: skip
def test_the_sentence_says_who_wins(large, value, outcome):
    rules = RuleScores("test", Measure("s", large), {"worse": {"s": 0.0 if large else 9.0},
                                                      "best": {"s": 1.0}})  # fmt: skip
    assert rules.outcome({"s": value}) == outcome
    won = outcome == "loses to"
    start = "This model beats the simple rules" if won else f"A simple rule {outcome} this model"
    assert rules.sentence({"s": value}).startswith(start)
    assert "best" in rules.sentence({"s": value})


def test_n_grams_score_every_token_of_the_split_and_say_how_much_text_they_read():
    corpus = language.load("pydoc")
    task = language.LanguageTask(corpus, batch=2, length=8)
    rules = task.simple_rules("test", seconds=0.01).rules
    test = corpus["test"].tokens
    assert "training tokens" in rules[-1].note
    full = task.simple_rules("test", seconds=1e3)
    assert not full.rules[0].note
    expected = KneserNey(corpus["train"].tokens, len(corpus.vocabulary), 2).bits(test)
    scores = full.rules[0].score()
    assert scores["bpc"] == pytest.approx(expected)
    assert scores["tokens"] == len(test)


def test_forecasting_rules_have_the_windows_of_the_evaluation():
    task = forecasting.ForecastingTask(forecasting.load("sunspots", horizon=10))
    rules = simple_rules(task, "valid")
    model = forecasting.build_model(task.windows.scheme, forecasting.ForecasterOptions(width=4))
    windows = task.evaluate(model, "valid")["windows"]
    assert {row["windows"] for row in rules.scores.values()} == {windows}
    assert rules.best == "linear regression"


def test_a_translation_memory_knows_what_it_has_read_and_copying_is_scored():
    corpus = translation.load("dates")
    task = translation.TranslationTask(corpus, batch=4)
    rules = simple_rules(task, "valid")
    pairs = corpus["valid"].pairs
    assert rules.scores["copying the source"]["bleu"] == text_bleu(pairs.source, pairs.target)
    read = corpus["train"].pairs
    memory = TranslationMemory(read.source[:200], read.target[:200])
    assert [memory(source) for source in read.source[:200]] == list(read.target[:200])


def plain_dtw(a, b, width):
    cost = np.full((len(a) + 1, len(b) + 1), np.inf)
    cost[0, 0] = 0
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            if abs(i - j) <= width:
                least = min(cost[i - 1, j], cost[i, j - 1], cost[i - 1, j - 1])
                cost[i, j] = ((a[i - 1] - b[j - 1]) ** 2).sum() + least
    return cost[-1, -1]


def test_dtw_is_the_plain_recursion_for_sequences_of_several_lengths():
    draw = np.random.default_rng(0)
    x = tuple(draw.normal(size=(n, 2)).astype(np.float32) for n in (9, 12, 11, 12, 10))
    part = Part(x, (0,) * 5)
    found = dtw(part.take(np.arange(3)), part)
    width = max(int(np.ceil(0.1 * 12)), 3)
    expected = [[plain_dtw(a, b, width) for b in x] for a in x[:3]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_minirocket_tells_frequencies_apart_that_a_distance_does_not():
    draw = np.random.default_rng(0)
    time = np.arange(40)[:, None]

    def part(count):
        y = [k % 2 for k in range(count)]
        phases = draw.uniform(0, 6.3, count)
        x = [np.sin(time * (0.5 + 0.3 * k) + p) for k, p in zip(y, phases, strict=True)]
        return Part(tuple(each.astype(np.float32) for each in x), tuple(y))

    train, test = part(40), part(30)
    assert (minirocket(train, test, 2) == np.array(test.y)).mean() > 0.9


@pytest.mark.parametrize("data", ["shapes", "morse", "tones", "visits"])
def test_every_kind_of_labels_has_a_rule_under_its_own_measure(data):
    task = classification.ClassificationTask(classification.load(data))
    rules = simple_rules(task, "test", seconds=1.0)
    assert rules.measure.name == task.measure.name
    assert task.measure.name in rules.scores["most frequent answer"]


def test_the_most_frequent_answer_is_as_often_right_as_it_occurs():
    task = classification.ClassificationTask(classification.load("digits"))
    y, test = np.array(task.data["train"].y), np.array(task.data["test"].y)
    rules = simple_rules(task, "test", seconds=0.5)
    expected = (test == np.bincount(y).argmax()).mean()
    assert rules.scores["most frequent answer"]["accuracy"] == pytest.approx(expected)
    few = task.data["test"].take(np.arange(20))
    assert (nearest(few, few, dtw) == np.array(few.y)).all()
