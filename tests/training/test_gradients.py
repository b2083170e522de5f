"""Any gradient rule trains, is saved and resumed; clipping is logged."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from metarnn.gradients import FORWARD, RULES
from metarnn.tasks.task import Loss
from metarnn.training import Settings, optimizer
from tests.helpers.toy import QUICK, ToyTask, equal, same, train


class Splitting(ToyTask):
    """The toy task with a loss that is a sum over time."""

    def loss(self, model: nn.Module, batch: Any, carried: Any = None) -> Loss:
        x, y, _ = batch
        logits, state = model(x, carried)
        nll = cross_entropy(logits.flatten(0, 1), y.flatten())
        carried = tuple(part.detach() for part in state)
        return Loss(nll, y.numel(), {"nll": nll.detach()}, carried, state=state)

    def split(self, batch: Any, steps: int) -> list[Any]:
        x, y, number = batch
        return [(a, b, number) for a, b in zip(x.split(steps), y.split(steps), strict=True)]


SMALL = replace(QUICK, steps=8, validate_every=4, save_every=4)


def run(out: Any = None, **changes: Any) -> Any:
    settings = replace(SMALL, **changes)
    return train(out, settings, task=Splitting(settings.batch), width=4, dropout=0.0)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["tbptt", "random-tbptt", "rtrl", "rflo", "kf-rtrl", "uoro"])
def test_a_run_that_was_stopped_ends_where_an_uninterrupted_one_does(name, tmp_path):
    rule = {"gradient": name, "k1": 1, "k2": 2}
    run(tmp_path / "whole", **rule)
    run(tmp_path / "parts", **rule, steps=4)
    settings = replace(SMALL, **rule)
    train(tmp_path / "parts", settings, resume=True, task=Splitting(8), width=4, dropout=0.0)
    assert same(tmp_path / "whole", tmp_path / "parts")


QUICK = ("bptt", "tbptt", "snap-1", "rflo")
LEARNING = [
    pytest.param(n, marks=pytest.mark.medium if n in QUICK else pytest.mark.slow) for n in RULES
]


@pytest.mark.parametrize("name", LEARNING)
def test_every_rule_learns(name):
    _, result = run(gradient=name, k1=1, k2=2, steps=60, lr=0.04, validate_every=0)
    assert result.best < 1.2  # ln 7 = 1.95 without learning


def test_truncation_as_long_as_the_batch_is_backpropagation():
    one, _ = run()
    for changes in ({"gradient": "tbptt", "k1": 1, "k2": 5}, {"checkpoint_every": 2}):
        other, _ = run(**changes)
        for w, v in zip(one.model.parameters(), other.model.parameters(), strict=True):
            torch.testing.assert_close(w, v, atol=1e-5, rtol=1e-4)


@pytest.mark.medium
@pytest.mark.parametrize("name", FORWARD)
def test_parts_of_a_batch_carry_their_own_influence(name):
    """A rule without chance gives the same whether a batch is one part or two."""
    if name in ("uoro", "kf-rtrl"):
        pytest.skip("draws")
    one, _ = run(gradient=name)
    other, _ = run(gradient=name, accumulate=2)
    for w, v in zip(one.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(w, v, atol=1e-5, rtol=1e-4)
    joined = [torch.cat(t, 1) for t in zip(*map(_tensors, other.parts.carried), strict=True)]
    for a, b in zip(_tensors(one.parts.carried[0]), joined, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)


def _tensors(carried: Any) -> list[torch.Tensor]:
    state, influence = carried
    return [*state, *influence.values()]


def test_a_task_that_cannot_be_cut_in_time_says_so():
    with pytest.raises(ValueError, match=r"gradient='rtrl': expected 'bptt': this task has no spl"):
        train(None, replace(SMALL, gradient="rtrl"))
    with pytest.raises(ValueError, match=r"checkpoint_every=2: expected 0: this task has no split"):
        train(None, replace(SMALL, checkpoint_every=2))


def test_settings_of_rules_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="k2=2: expected at least k1=4"):
        Settings(gradient="tbptt", k1=4, k2=2)
    with pytest.raises(ValueError, match="float32 with gradient='rtrl'"):
        Settings(gradient="rtrl", precision="bfloat16")


def gradients() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    x = torch.randn(5, 3)
    for model in models:
        model(x).square().sum().backward()
    return models[0], models[1]


def test_clipping_by_value_equals_torchs():
    ours, theirs = gradients()
    numbers = torch.cat([w.grad.flatten() for w in theirs.parameters() if w.grad is not None])
    *_, clipped = optimizer.clip(dict(ours.named_parameters()), 0.1, "value")
    assert clipped == (numbers.abs() > 0.1).float().mean()
    nn.utils.clip_grad_value_(theirs.parameters(), 0.1)
    assert equal([w.grad for w in ours.parameters()], [w.grad for w in theirs.parameters()])


def test_adaptive_clipping_leaves_no_unit_a_gradient_longer_than_its_share():
    ours, before = gradients()
    *_, told = optimizer.clip(dict(ours.named_parameters()), 0.1, "adaptive")
    clipped = 0
    for w, v in zip(ours.parameters(), before.parameters(), strict=True):
        assert w.grad is not None
        assert v.grad is not None
        for unit, now, was in zip(w, w.grad, v.grad, strict=True):
            limit = 0.1 * max(unit.norm().item(), 1e-3)
            share = min(1.0, limit / (was.norm().item() + 1e-12))
            torch.testing.assert_close(now, share * was)
            clipped += share < 1
    assert clipped
    assert told.item() == pytest.approx(clipped / sum(len(w) for w in ours.parameters()))


def test_norms_and_how_often_they_were_clipped_are_logged(tmp_path):
    run(tmp_path / "run", clip=1e-3, log_every=2)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    logged = [line for line in lines if "gradient_norm" in line]
    assert all(line["clipped"] == 1 and line["gradient_norm"] > 1e-3 for line in logged)
    assert logged
