"""Every strategy runs, is the same each time, and goes on where it was stopped."""

import json
import os
import signal
from dataclasses import replace
from typing import Any

import pytest
import torch

from metarnn.search import Search, SearchOptions, UnitSpace, known
from metarnn.search.strategies import STRATEGIES
from metarnn.search.strategies.random_search import RandomSearch
from metarnn.search.trial import Outcome, Trial
from metarnn.training import Folder, Settings, World
from metarnn.training.interrupt import Interrupted
from metarnn.training.spike import Spikes
from tests.helpers import planted

SPACE = UnitSpace(slots=("lin", "lin", "mix"), states=1)
SETTINGS = Settings(steps=12, batch=16, lr=0.01)
OPTIONS = SearchOptions(
    search_width=4,
    candidate_steps=3,
    population=3,
    tournament=2,
    samples=6,
    finalists=2,
    finalist_steps=3,
    polish=2,
    check_every=4,
)
KINDS = {
    "darts": {"strategy": "darts"},
    "darts, second order": {"strategy": "darts", "order": 2},
    "darts, difference": {"strategy": "darts", "order": 2, "hessian": "difference"},
    "darts, perturbation": {"strategy": "darts", "selection": "perturbation"},
    "gdas": {"strategy": "gdas"},
    "written": {"strategy": "written"},
    "random-sharing": {"strategy": "random-sharing"},
    "enas": {"strategy": "enas"},
    "random": {"strategy": "random"},
    "evolution": {"strategy": "evolution", "start_from": ("elman",)},
}


def search(kind, folder=None, *, steps=SETTINGS.steps, **changes):
    settings = replace(SETTINGS, steps=steps)
    options = replace(OPTIONS, **KINDS[kind], **changes)
    place = None if folder is None else Folder(folder)
    if place is not None:
        place.last.parent.mkdir(parents=True, exist_ok=True)
    return Search(planted.problem(sequences=32), SPACE, settings, options, folder=place)


def test_all_strategies_are_tried_here():
    assert {each["strategy"] for each in KINDS.values()} == set(STRATEGIES)


@pytest.mark.medium
@pytest.mark.parametrize("kind", KINDS)
def test_a_search_finds_a_unit_and_one_that_was_killed_finds_the_same(kind, tmp_path, monkeypatch):
    whole = search(kind).run()
    assert whole.unit.useful
    assert len(whole.finalists) <= OPTIONS.finalists

    class Killed(Exception):
        pass

    halted = search(kind, tmp_path)
    step, count = type(halted.strategy).step, []

    def until(self):
        count.append(1)
        if self.at.step >= 7:
            raise Killed
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(type(halted.strategy), "step", until)
        with pytest.raises(Killed):
            halted.run()
    again = search(kind, tmp_path)
    assert again.resume()
    assert 0 < again.strategy.at.step < SETTINGS.steps
    found = again.run()
    assert found.unit == whole.unit
    assert found.finalists == whole.finalists
    lines = [json.loads(line) for line in Folder(tmp_path).metrics.read_text().splitlines()]
    steps = [line["step"] for line in lines]
    assert steps == sorted(set(steps))
    assert max(steps) == SETTINGS.steps


@pytest.mark.medium
def test_what_is_logged_tells_how_a_differentiable_search_stands(tmp_path):
    search("darts", tmp_path).run()
    lines = [json.loads(line) for line in Folder(tmp_path).metrics.read_text().splitlines()]
    assert {"structure_loss", "gap", "entropy", "alpha_gradient", "mass_tanh"} <= lines[-1].keys()
    assert 0 < lines[-1]["entropy"] <= 1
    assert lines[-1]["alpha_gradient"] > 0


@pytest.mark.medium
def test_a_signal_saves_and_interrupts(tmp_path, monkeypatch):
    begun = search("random", tmp_path)
    propose = RandomSearch.propose

    def signalled(self):
        if len(self.tried) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return propose(self)

    with monkeypatch.context() as patch:
        patch.setattr(RandomSearch, "propose", signalled)
        with pytest.raises(Interrupted):
            begun.run()
    again = search("random", tmp_path)
    assert again.resume()
    assert again.run().unit == search("random").run().unit


@pytest.mark.medium
def test_a_checkpoint_of_another_search_is_refused(tmp_path):
    search("random", tmp_path).run()
    with pytest.raises(ValueError, match="strategy='evolution'"):
        search("evolution", tmp_path).resume()


def test_the_three_parts_of_the_data_are_used_as_said(monkeypatch):
    seen = set()
    evaluate, batches = planted.Planted.evaluate, planted.Planted.batches

    def evaluated(self, model, split="valid"):
        seen.add(("scores", self.trains_on, split))
        return evaluate(self, model, split)

    def read(self, shard):
        seen.add(("trains", self.trains_on))
        return batches(self, shard)

    monkeypatch.setattr(planted.Planted, "evaluate", evaluated)
    monkeypatch.setattr(planted.Planted, "batches", read)
    torch.manual_seed(0)
    search("random").run()
    # Candidates learn from the first part, the second scores them, the third decides.
    assert seen == {
        ("trains", "weights"),
        ("scores", "weights", "valid"),
        ("scores", "structure", "valid"),
    }


def test_evolution_tries_no_unit_twice(monkeypatch):
    monkeypatch.setattr(Trial, "run", lambda *given: Outcome(1.0))
    strategy: Any = search("evolution", steps=1000).strategy
    for _ in range(40):
        strategy.step()
    children = [SPACE.genotype(each.choices) for each in strategy.tried][OPTIONS.population :]
    assert len(set(children)) == len(children) == 37


def test_epochs_of_the_weights_data_are_a_budget_too(monkeypatch):
    monkeypatch.setattr(Trial, "run", lambda *given: Outcome(1.0))
    monkeypatch.setattr(planted.Planted, "batches_per_epoch", 4.5, raising=False)
    settings, options = replace(SETTINGS, steps=0, epochs=2.0), replace(OPTIONS, strategy="random")
    strategy: Any = Search(planted.problem(sequences=32), SPACE, settings, options).strategy
    while not strategy.reached():
        strategy.step()
        assert strategy.at.step <= 9
    assert strategy.at.step == 9


def test_a_unit_whose_loss_spikes_too_often_is_as_bad_as_can_be(monkeypatch):
    monkeypatch.setattr(Spikes, "seen", lambda self, loss: True)
    trial = Trial(known.ELMAN.cell, replace(SETTINGS, steps=3, spike=3.0), OPTIONS.search_width)
    assert trial.run(planted.problem(sequences=32), World()).score == float("inf")
