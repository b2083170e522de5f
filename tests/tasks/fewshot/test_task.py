import itertools
import math

import pytest
import torch

from metarnn.tasks.fewshot import (
    Dynamics,
    FewShotTask,
    LearnerOptions,
    Sinusoids,
    build_learner,
    waves,
)
from metarnn.tasks.fewshot.methods import STEPPING
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
def test_every_method_trains_on_every_family_or_says_why_not(method, family):
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


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_maml_on_sinusoids_reaches_the_published_scores():
    torch.manual_seed(0)
    chosen = FewShotTask(Sinusoids(), queries=10, test_shots=5, test_steps=(1, 5, 10))
    learner = build_learner(chosen.family, LearnerOptions("maml"))
    settings = Settings(
        batch=25, steps=70_000, schedule="cosine", clip=0, validate_every=5000, log_every=1000
    )
    Trainer(chosen, learner, settings).fit()
    scores = chosen.evaluate(learner, "test")
    assert scores["mse_after_1"] <= 0.67
    assert scores["mse_after_5"] <= 0.38
    assert scores["mse"] <= 0.35
