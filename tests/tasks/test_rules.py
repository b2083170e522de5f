"""Simple rules: scored on the model's own examples, cached, and never stale."""

import json
import sys

import numpy as np
import pytest
import torch

from metarnn.tasks import classification, forecasting, language, rules, translation
from metarnn.tasks.classification import hydra
from metarnn.tasks.classification.baselines import dtw, minirocket, nearest
from metarnn.tasks.classification.examples import Part, Scheme
from metarnn.tasks.language.ngram import KneserNey
from metarnn.tasks.rules import FILE, Rule, RuleScores, RuleSet, cache_of
from metarnn.tasks.task import Measure
from metarnn.tasks.translation.metrics import text_bleu
from metarnn.tasks.translation.rules import TranslationMemory


def simple_rules(*arguments, **options) -> RuleScores:
    """The rules of a task that has some."""
    scores = rules.simple_rules(*arguments, **options)
    assert scores is not None
    return scores


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


def test_a_rule_that_was_skipped_is_computed_once_it_is_cheaper(tmp_path):
    assert not simple_rules(Counting(seconds=70), "test", tmp_path).scores
    assert not simple_rules(Counting(seconds=70), "test", tmp_path).scores
    assert simple_rules(Counting(seconds=7), "test", tmp_path).scores
    assert simple_rules(Counting(seconds=70), "test", tmp_path).scores  # known by now


def test_a_cache_spares_the_rules_and_other_data_or_another_split_do_not_use_it(tmp_path):
    task = Counting()
    first = simple_rules(task, "test", tmp_path)
    assert simple_rules(task, "test", tmp_path) == first
    assert task.calls == 1
    simple_rules(task, "valid", tmp_path)
    task.fingerprint = "b"
    simple_rules(task, "test", tmp_path)
    assert task.calls == 3


class Limited(Counting):
    """Its rule reads as much as there is time for; another takes 5 seconds."""

    def simple_rules(self, split, seconds):
        slow = Rule("slow", 5.0, lambda: {"error": 0.5})
        quick = Rule("rule", 0.0, lambda: {"error": 1 / (1 + seconds)}, f"{seconds} seconds")
        return RuleSet("a", Measure("error"), (quick, slow))


def test_a_rule_has_one_score_whatever_time_a_later_command_has(tmp_path):
    first = simple_rules(Limited(), "test", tmp_path, seconds=1.0)
    assert first.skipped == ("slow",)
    assert first.sentence({"error": 0.1}).endswith("the best, rule; skipped: slow.")
    again = simple_rules(Limited(), "test", tmp_path, seconds=0.0)
    assert (again.scores, again.notes) == (first.scores, first.notes)
    more = simple_rules(Limited(), "test", tmp_path, seconds=9.0)
    assert more.scores == {"rule": {"error": 0.5}, "slow": {"error": 0.5}}
    assert more.notes == ("rule: 1.0 seconds",)


@pytest.mark.parametrize(
    "task",
    [
        lambda: language.LanguageTask(language.load("pydoc"), batch=2, length=8),
        lambda: translation.TranslationTask(translation.load("dates"), batch=4),
        lambda: classification.ClassificationTask(classification.load("digits")),
        lambda: forecasting.ForecastingTask(forecasting.load("sunspots", horizon=10)),
    ],
)
def test_what_a_cache_is_of_does_not_depend_on_the_time_for_it(task):
    sets = [task().simple_rules("test", seconds) for seconds in (0.0, 0.5, 100.0)]
    assert len({each.fingerprint for each in sets}) == 1
    assert len({tuple(rule.name for rule in each.rules) for each in sets}) == 1


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
    assert rules.simple_rules(object(), "test", tmp_path) is None


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


AEON = """
import numpy as np
import torch

class MultiRocketHydraClassifier:
    def __init__(self, random_state):
        torch.manual_seed(random_state)

    def fit(self, x, y):
        assert x.shape[1:] == (2, 12), x.shape
        self.means = [x[y == k].mean((0, 2)) for k in range(2)]

    def predict(self, x):
        return np.array([[abs(e.mean(1) - m).sum() for m in self.means] for e in x]).argmin(1)
"""


def constants(count, steps=12):
    """The first channel of a class 1 is higher."""
    x = [np.stack([np.full(steps, k % 2), np.arange(steps)], 1) for k in range(count)]
    return Part(tuple(each.astype(np.float32) for each in x), tuple(k % 2 for k in range(count)))


def test_multirocket_hydra_stands_beside_the_others_where_aeon_is_installed(tmp_path, monkeypatch):
    scheme = Scheme("one", ("a", "b"), 2, mean=(0, 0), std=(1, 1))
    name = "MultiRocket-Hydra with ridge (aeon)"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))

    def rules(train, test, seconds=100.0):
        data = classification.Dataset(scheme, {"train": train, "test": test})
        return {r.name: r for r in classification.ClassificationTask(data, 2).simple_rules(
            "test", seconds).rules}  # fmt: skip

    monkeypatch.setattr(hydra, "installed", lambda: False)
    assert name not in rules(constants(20), constants(10))
    monkeypatch.undo()

    package = tmp_path / "aeon" / "classification"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "convolution_based.py").write_text(AEON)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    for module in [module for module in sys.modules if module.split(".")[0] == "aeon"]:
        monkeypatch.delitem(sys.modules, module)
    rule = rules(constants(20), constants(10))[name]
    assert rule.seconds > hydra.COMPILE_SECONDS
    before = torch.get_rng_state()
    assert rule.score()["accuracy"] == 1.0
    assert torch.equal(torch.get_rng_state(), before)
    kernels = tmp_path / "numba" / "some"
    kernels.mkdir(parents=True)
    (kernels / "_multirocket._transform_uni-290.py311.nbi").touch()
    assert rules(constants(20), constants(10))[name].seconds < hydra.COMPILE_SECONDS
    assert name not in rules(constants(20, 9), constants(10, 9))  # too short for its kernels
    assert name not in rules(constants(20, 12), constants(10, 13))
    for module in [module for module in sys.modules if module.split(".")[0] == "aeon"]:
        monkeypatch.delitem(sys.modules, module)


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
