"""The gradient of the structure, against autograd through the weights' update."""

import pytest
import torch
from torch.func import functional_call

from metarnn.search import DartsSpace, UnitSpace
from metarnn.search.bilevel import first_order, second_order
from metarnn.search.problem import Reader
from metarnn.search.supernet import Supernet
from metarnn.tasks.task import Shard
from tests.helpers import planted

RATE = 0.3
SPACES = [UnitSpace(slots=("lin", "lin", "mix", "mix")), DartsSpace(nodes=2)]


def setting(space):
    """A mixture in float64, its shares, and the losses of a batch of each part."""
    torch.manual_seed(0)
    problem = planted.problem(sequences=4)
    model = problem.model(space.mixture, 3).double()
    net = Supernet(space, model)
    alpha = torch.randn(sum(space.sizes), dtype=torch.float64).requires_grad_()
    net.alpha = alpha
    mix = space.probabilities(alpha).detach().requires_grad_()
    net.use(mix)
    readers = [Reader(task, [Shard()]) for task in (problem.weights, problem.structure)]
    one, two = (reader.read(model) for reader in readers)
    return model, mix, one, two


def by_autograd(model, mix, weights, structure):
    """L_s(w - ξ ∇_w L_w(w, α), α), differentiated as it is written."""
    named = dict(model.named_parameters())
    (loss,) = weights.losses()
    gradients = torch.autograd.grad(loss.value, list(named.values()), create_graph=True)
    moved = {name: w - RATE * g for (name, w), g in zip(named.items(), gradients, strict=True)}
    (((x, y), _),) = structure.held
    outputs, _ = functional_call(model, moved, (x.double(),))
    return torch.autograd.grad((outputs - y.double()).square().mean(), mix)[0]


@pytest.mark.medium
@pytest.mark.parametrize("space", SPACES, ids=lambda s: type(s).__name__)
def test_second_order_is_the_gradient_of_the_bilevel_objective(space):
    model, mix, one, two = setting(space)
    before = [w.detach().clone() for w in model.parameters()]
    ours = second_order(one, two, list(model.parameters()), mix, RATE)
    torch.testing.assert_close(ours, by_autograd(model, mix, one, two), rtol=0, atol=1e-10)
    for w, was in zip(model.parameters(), before, strict=True):
        assert torch.equal(w, was)


@pytest.mark.medium
def test_second_order_differs_from_first_and_the_difference_quotient_is_close_to_it():
    model, mix, one, two = setting(SPACES[0])
    first = first_order(two, mix)
    exact = second_order(one, two, list(model.parameters()), mix, RATE)
    close = second_order(one, two, list(model.parameters()), mix, RATE, "difference")
    assert (exact - first).norm() > 0.01 * first.norm()
    assert (close - exact).norm() < 0.05 * (exact - first).norm()


@pytest.mark.medium
def test_a_step_of_length_0_is_first_order():
    model, mix, one, two = setting(SPACES[0])
    exact = second_order(one, two, list(model.parameters()), mix, 0.0)
    torch.testing.assert_close(exact, first_order(two, mix), rtol=1e-12, atol=1e-14)
