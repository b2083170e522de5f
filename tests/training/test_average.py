"""Averages of weights equal those computed from a list of all weights."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from metarnn.training.average import Average, stalled
from tests.helpers.toy import QUICK, train


def walk(average, model, steps=7):
    torch.manual_seed(1)
    seen = []
    for _ in range(steps):
        with torch.no_grad():
            model.weight.add_(torch.randn_like(model.weight))
        seen.append(model.weight.detach().clone())
        average.update()
    return torch.stack(seen)


def test_the_plain_mean():
    model = nn.Linear(3, 2, bias=False)
    average = Average(model)
    seen = walk(average, model)
    torch.testing.assert_close(average.values["weight"], seen.mean(0))


def test_the_exponential_average():
    model = nn.Linear(3, 2, bias=False)
    average = Average(model, decay=0.8)
    walk(average, model, 40)  # from the 36th update on, the last fifth counts for a fifth
    expected = average.values["weight"].clone()
    for weight in walk(average, model):
        expected = 0.8 * expected + 0.2 * weight
    torch.testing.assert_close(average.values["weight"], expected)


def test_an_exponential_average_of_few_updates_has_forgotten_the_first():
    """Of 20 updates the first counts for a ten-thousandth, with a plain one for nearly all."""
    model = nn.Linear(1, 1, bias=False)
    average = Average(model, decay=0.999)
    for step in range(20):
        with torch.no_grad():
            model.weight.fill_(float(step == 0))
        average.update()
    assert 0 < float(average.values["weight"]) < 1e-4


def test_sgd_with_the_plain_mean_is_torchs_averaged_sgd():
    torch.manual_seed(0)
    ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    sgd, average = torch.optim.SGD(ours.parameters(), lr=0.1), Average(ours)
    asgd = torch.optim.ASGD(theirs.parameters(), lr=0.1, lambd=0.0, t0=0)
    for step in range(6):
        x = torch.randn(4, 3)
        for model, optimizer in ((ours, sgd), (theirs, asgd)):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        if step:  # torch's begins to average at the second step
            average.update()
    for name, w in theirs.named_parameters():
        torch.testing.assert_close(average.values[name], asgd.state[w]["ax"])


def test_weights_come_back_to_the_bit_even_after_an_error():
    model = nn.Linear(3, 2)
    average = Average(model, 0.9)
    walk(average, model)
    before = {name: w.detach().clone() for name, w in model.named_parameters()}
    seen = []

    def fail():
        seen.append(model.weight.detach().clone())
        raise KeyError

    with pytest.raises(KeyError), average.applied():
        fail()
    assert seen[0].equal(average.values["weight"])
    assert not seen[0].equal(before["weight"])
    assert all(w.equal(before[name]) for name, w in model.named_parameters())


def test_averages_of_another_model_are_refused():
    small, large = nn.Linear(3, 2), nn.Linear(4, 2)
    average = Average(small)
    walk(average, small)
    with pytest.raises(ValueError, match=r"'weight' has the shape .*\[2, 3\]"):
        Average(large).load_state_dict(average.state_dict())


def test_the_trigger_is_awd_lstms():
    scores = [10.0, 9.0, 8.0, 9.5, 9.4, 9.3, 8.5, 9.0, 7.0]
    for window in (1, 2, 3):
        earlier: list[float] = []
        for k, score in enumerate(scores):
            # As in its training loop, where a score is added after the comparison.
            expected = len(earlier) > window and score > min(earlier[:-window])
            assert stalled(scores[: k + 1], window) == expected
            earlier.append(score)


def test_the_best_weights_are_the_averages_that_were_evaluated():
    trainer, result = train(None, replace(QUICK, ema=0.9, patience=3))
    with torch.no_grad():
        trainer.model.eval()
        assert trainer.task.evaluate(trainer.model)["nll"] == result.best
