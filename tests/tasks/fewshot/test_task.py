import itertools
import math
from functools import partial

import pytest
import torch

from metarnn.meta import fine_tuning
from metarnn.tasks.fewshot import (
    Dynamics,
    FewShotTask,
    LearnerOptions,
    Sinusoids,
    build_learner,
    waves,
)
from metarnn.tasks.fewshot.methods import STEPPING
from metarnn.tasks.fewshot.presets import PRESETS
from metarnn.tasks.task import Shard
from metarnn.training import Settings, Trainer

FAMILIES = {
    "sinusoid": Sinusoids,
    "dynamics": lambda: Dynamics(history=3, horizon=2, pools=(12, 6, 6), length=30),
    "waves": lambda: waves(3, classes=20, examples=6, length=8),
}
METHODS = [*STEPPING, "hyper", "hyper-metadata", "prototypical", "matching", "reading"]


def task(family="sinusoid", **options):
    return FewShotTask(
        FAMILIES[family](), **{"batch": 4, "shots": 2, "queries": 3, "tasks": 6, **options}
    )


@pytest.mark.medium
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_on_every_family_or_says_why_not(method, family, monkeypatch):
    few = partial(fine_tuning, rates=(0.01, 0.1), steps=(1, 3))  # 7 and 5 of them take seconds
    monkeypatch.setattr("metarnn.tasks.fewshot.task.fine_tuning", few)
    chosen = task(family, test_steps=(0, 1))
    options = LearnerOptions(method, width=4)
    comparing = method in ("prototypical", "matching") and family != "waves"
    if comparing or (method == "hyper-metadata" and family == "waves"):
        with pytest.raises(ValueError, match=f"method={method!r}"):
            build_learner(chosen.family, options)
        return
    learner = build_learner(chosen.family, options)
    result = Trainer(chosen, learner, Settings(batch=4, steps=2)).fit()
    assert math.isfinite(result.best)
    scores = chosen.evaluate(learner, "test")
    assert scores["tasks"] == 6
    assert any(name.endswith("after_0") for name in scores) == (method in STEPPING)


def test_episodes_do_not_depend_on_how_many_processes_share_them():
    whole = list(itertools.islice(task().batches(Shard()), 3))
    parts = [list(itertools.islice(task().batches(Shard(k, 2)), 3)) for k in range(2)]
    for k, episode in enumerate(whole):
        joined = torch.cat([part[k].query_x for part in parts])
        assert torch.equal(joined, episode.query_x)
        about = torch.cat([part[k].about["phase"] for part in parts])
        assert torch.equal(about, episode.about["phase"])


def test_batches_go_on_where_they_were():
    batches = task().batches(Shard())
    next(batches)
    state = batches.state_dict()
    expected = next(batches)
    again = task().batches(Shard())
    again.load_state_dict(state)
    assert torch.equal(next(again).x, expected.x)


def test_scores_are_of_the_same_tasks_each_time_and_count_the_last_steps():
    chosen = task(test_steps=(1, 5), test_shots=5)
    learner = build_learner(chosen.family, LearnerOptions())
    first = chosen.evaluate(learner, "test")
    assert first == chosen.evaluate(learner, "test")
    assert next(iter(first)) == "mse"
    assert first["mse"] != first["mse_after_1"]
    assert next(chosen.episodes("test")).x.shape == (6, 5, 1)


def trained(family, options, steps, **settings):
    """A learner after so many updates, and its task."""
    torch.manual_seed(0)
    chosen = FewShotTask(family, **settings.pop("task", {}))
    learner = build_learner(chosen.family, options)
    usual = {"batch": chosen.batch, "schedule": "cosine", "clip": 0.0, "validate_every": 0}
    Trainer(chosen, learner, Settings(steps=steps, log_every=1000, **{**usual, **settings})).fit()
    return chosen.evaluate(learner, "test")


SINES = {
    "maml": (
        LearnerOptions("maml"),
        70_000,
        {"mse_after_1": 0.67, "mse_after_5": 0.38, "mse": 0.35},
    ),
    "fomaml": (LearnerOptions("fomaml"), 70_000, {"mse_after_1": 0.85}),
    "metasgd": (LearnerOptions("metasgd"), 70_000, {"mse_after_1": 0.50}),
    "reptile": (
        LearnerOptions("reptile", inner_steps=4, inner_lr=0.02),
        24_000,
        {"mse_after_1": 1.3},
    ),
    "hyper": (LearnerOptions("hyper"), 6_000, {"mse": 0.30}),
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SINES)
def test_sinusoids_reach_the_published_scores(name):
    options, steps, limits = SINES[name]
    task = {"test_shots": 5, "test_steps": (1, 5, 10)}
    every = PRESETS["sinusoid-published"]["validate_every"]
    scores = trained(Sinusoids(), options, steps, task=task, validate_every=every)
    missed = {key: scores[key] for key, limit in limits.items() if scores[key] > limit}
    assert not missed, limits


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["vanderpol", "lorenz", "mackeyglass"])
def test_systems_with_parameters_never_seen_are_forecast_best_by_those_who_learned_to_adapt(name):
    preset = PRESETS[name]
    family = Dynamics(name, preset["history"], fresh=preset.get("fresh", False))

    def scores(method):
        taking = {key: preset[key] for key in ("width", "inner_steps", "inner_lr")}
        task = {"batch": preset["batch"], "test_steps": (3,)}
        options = LearnerOptions(method, **taking)
        return trained(family, options, preset["steps"], lr=preset["lr"], clip=1.0, task=task)

    joint, learned, hyper = (scores(method) for method in ("joint", "maml", "hyper-metadata"))
    best = min(joint["mse"], joint["mse_after_0"])  # fine-tuned, with what is best on valid tasks
    assert learned["mse"] + learned["mse_interval"] < best
    assert hyper["mse"] < 0.5 * best
