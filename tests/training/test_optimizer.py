"""Updates are those of torch's optimisers; clipping is torch's."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from metarnn.tasks.task import Shard
from metarnn.training import Settings, optimizer
from tests.helpers.toy import QUICK, ToyModel, ToyTask, train


def with_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    model(torch.randn(5, 3)).square().sum().backward()
    return model


@pytest.mark.parametrize("most", [0.1, 1.0, 1e9])
def test_clipping_equals_torchs(most):
    ours, theirs = with_gradients(), with_gradients()
    norm, norms, _ = optimizer.clip(dict(ours.named_parameters()), most)
    expected = nn.utils.clip_grad_norm_(theirs.parameters(), most)
    torch.testing.assert_close(norm, expected)
    for (name, w), v in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        gradient = v.grad
        assert gradient is not None
        torch.testing.assert_close(w.grad, gradient)
        scale = min(1.0, most / (expected.item() + 1e-6))
        torch.testing.assert_close(norms[name] * scale, torch.linalg.vector_norm(gradient))


def test_without_a_limit_gradients_stay_as_they_are():
    ours, theirs = with_gradients(), with_gradients()
    optimizer.clip(dict(ours.named_parameters()), 0.0)
    for w, v in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(w.grad, v.grad, rtol=0, atol=0)


def test_weight_decay_acts_on_matrices_alone():
    model = with_gradients()
    built = optimizer.build(model, Settings(weight_decay=0.3))
    decay = {id(w): g["weight_decay"] for g in built.param_groups for w in g["params"]}
    assert {name: decay[id(w)] for name, w in model.named_parameters()} == {
        "0.weight": 0.3,
        "0.bias": 0.0,
        "1.weight": 0.3,
        "1.bias": 0.0,
    }


def by_hand(make, steps=12):
    """The toy model after so many steps of a loop written out."""
    torch.manual_seed(0)
    model = ToyModel(dropout=0.0)
    task, optim, carried = ToyTask(), make(model.parameters()), None
    batches = task.batches(Shard())
    for _ in range(steps):
        optim.zero_grad()
        loss = task.loss(model, next(batches), carried)
        loss.value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        carried = loss.carried
    return model


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_training_is_the_plain_loop_with_torchs_optimiser(name):
    def make(parameters):
        if name == "adamw":
            return torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.0)
        return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)

    model = by_hand(make)
    settings = replace(QUICK, optimizer=name, momentum=0.9, steps=12, validate_every=0)
    trainer, _ = train(None, settings, dropout=0.0)
    for key, w in model.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[key], w, rtol=1e-4, atol=1e-6)
