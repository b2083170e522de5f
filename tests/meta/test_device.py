"""What `meta` computes on a GPU beside the same on a CPU."""

import copy
from typing import Any

import pytest
import torch
from torch.func import functional_call

from metarnn.meta import SGD, Adam, objective
from metarnn.tasks.fewshot import Dynamics, FewShotTask, LearnerOptions, build_learner
from metarnn.tasks.task import Shard
from tests.helpers.cases import EVERY, make, randn
from tests.helpers.compare import assert_close
from tests.helpers.interpreter import ON_GPU

pytestmark = [pytest.mark.medium, pytest.mark.skipif(not ON_GPU, reason="there is no GPU")]


def meta_gradients(layer, rule, device, **options) -> list[torch.Tensor]:
    layer = copy.deepcopy(layer).to(device)
    params = dict(layer.named_parameters())

    def loss(params, x):
        return functional_call(layer, params, (x,))[0].square().mean()

    support, query = randn(3, 2, 4, 3).to(device), randn(3, 2, 4, 3, seed=5).to(device)
    value = objective(params, loss, support, query, 3, rule, **options).sum()
    unused: Any = {"allow_unused": True, "materialize_grads": True}
    found = torch.autograd.grad(value, list(params.values()), **unused)
    return [value.detach().cpu(), *(g.cpu() for g in found)]


@pytest.mark.parametrize("rule", [SGD(0.1), SGD(0.1, 0.9), Adam(0.05)])
@pytest.mark.parametrize("name", EVERY)
def test_second_order_through_every_cell_is_that_of_a_cpu(name, rule):
    layer = make(EVERY[name], batch_first=True)
    expected = meta_gradients(layer, rule, "cpu")
    assert_close(meta_gradients(layer, rule, "cuda"), expected, 1e-10)
    assert_close(meta_gradients(layer, rule, "cuda", checkpoint=2), expected, 1e-10)


@pytest.mark.parametrize("method", ["maml", "metasgd", "anil", "imaml", "hyper", "hyper-maml"])
def test_learners_have_the_losses_and_gradients_of_a_cpu(method):
    family = Dynamics(history=3, horizon=2, pools=(12, 6, 6), length=30)
    learner = build_learner(family, LearnerOptions(method, width=4, inner_steps=2)).double()
    episode = next(FewShotTask(family, batch=4, shots=2, queries=3).batches(Shard()))
    found = []
    for device in ("cpu", "cuda"):
        moved = copy.deepcopy(learner).to(device)
        given = episode._mapped(lambda t, to=device: t.to(to, torch.float64))
        costs = moved(given)
        costs.mean().backward()
        found.append(
            [
                costs.detach().cpu(),
                *(w.grad.cpu() for w in moved.parameters() if w.grad is not None),
            ]
        )
    assert_close(found[1], found[0], 1e-10)
