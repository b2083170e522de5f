import pytest
import torch

from metarnn.meta import SGD, Adam, optimiser
from tests.helpers.cases import randn
from tests.helpers.compare import assert_close

THEIRS = {
    "sgd": (SGD(0.1), lambda w: torch.optim.SGD(w, 0.1)),
    "momentum": (SGD(0.1, 0.9), lambda w: torch.optim.SGD(w, 0.1, momentum=0.9)),
    "adam": (Adam(0.1, (0.8, 0.95)), lambda w: torch.optim.Adam(w, 0.1, (0.8, 0.95))),
}


@pytest.mark.parametrize("name", THEIRS)
def test_updates_are_those_of_torch_optim(name):
    ours, theirs = THEIRS[name]
    weights = {"a": randn(3, 2), "b": randn(4, seed=2)}
    leaves = {n: w.clone().requires_grad_() for n, w in weights.items()}
    reference, state = theirs(leaves.values()), ours.begin(weights)
    for k in range(5):
        gradients = {n: randn(*w.shape, seed=10 + k) for n, w in weights.items()}
        weights, state = ours.step(weights, gradients, state)
        for n, w in leaves.items():
            w.grad = gradients[n]
        reference.step()
    assert_close(list(weights.values()), list(leaves.values()))


def test_a_rate_may_be_a_tensor_for_each_weight():
    rates = {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor(2.0)}
    weights = {"a": torch.zeros(2), "b": torch.zeros(2)}
    moved, _ = SGD(rates).step(weights, {n: torch.ones(2) for n in weights}, ())
    assert moved["a"].tolist() == [-1, 0]
    assert moved["b"].tolist() == [-2, -2]


def test_adam_has_finite_second_derivatives_where_a_gradient_is_zero():
    w = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    rule = Adam(0.1)
    moved, _ = rule.step({"w": w}, {"w": w * torch.tensor([0.0, 1.0, 1.0])}, rule.begin({"w": w}))
    (gradient,) = torch.autograd.grad(moved["w"].sum(), w)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: SGD(-1.0), "lr=-1.0"),
        (lambda: SGD(0.1, 1.0), "momentum=1.0"),
        (lambda: Adam(0.1, (0.9, 1.5)), "betas=1.5"),
        (lambda: optimiser("adma", 0.1), "Did you mean 'adam'"),
    ],
)
def test_numbers_without_meaning_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
