"""A module for every task, against the plain module called with the weights of one task."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call

import metarnn
from metarnn.hyper import OneHot, hypernetize
from metarnn.hyper.hypernetize import hyperfan
from tests.helpers.cases import randn
from tests.helpers.compare import assert_close

TASKS = 3
ONES = torch.ones(TASKS, 2, 4)


def mlp():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def conv():
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(75, 2))


def block():
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


MODULES = {
    "mlp": (mlp, (5, 4)),
    "conv": (conv, (5, 2, 5, 5)),
    "transformer block": (block, (5, 3, 8)),
    "our lstm": (lambda: metarnn.LSTM(4, 6, num_layers=2, bidirectional=True), (7, 5, 4)),
}
GENERATORS = ["dense", "chunked", "conv", "attention", "recurrent"]


def output(found):
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("start", ["zero", "hyperfan"])
@pytest.mark.parametrize("name", MODULES)
def test_one_pass_for_all_tasks_equals_the_module_with_the_weights_of_each(name, start, training):
    make, shape = MODULES[name]
    module = make().double()
    many = hypernetize(module, descriptor=4, start=start).train(training)
    about, x = randn(TASKS, 4), randn(TASKS, *shape, seed=2)
    with torch.set_grad_enabled(training):
        if start == "zero":
            assert_close(output(many(about, x))[0], output(module.train(training)(x[0])), 1e-10)
            for parameter in many.generator.parameters():
                nn.init.normal_(parameter, std=0.1)
        found, weights = output(many(about, x)), many.weights(about)
        for k in range(TASKS):
            own = {n: w[k] for n, w in weights.items()}
            assert_close(found[k], output(functional_call(module, own, (x[k],))), 1e-10)
    assert not torch.equal(found[0], found[1])


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("start", ["zero", "hyperfan"])
def test_gradient_reaches_every_parameter_of_the_generator(generator, start):
    many = hypernetize(mlp(), generator, descriptor=4, start=start, context=8)
    rule = torch.optim.Adam(many.parameters(), 0.01)
    about, x = torch.randn(TASKS, 4), torch.randn(TASKS, 5, 4)
    for _ in range(2):  # at a head that is 0 gradient stops once
        rule.zero_grad()
        many(about, x).square().sum().backward()
        rule.step()
    dead = [n for n, w in many.named_parameters() if w.grad is None or not w.grad.abs().sum()]
    # A softmax is the same whatever is added to all keys.
    assert [n for n in dead if not n.endswith("key.bias")] == []


def test_weights_that_are_not_named_are_shared_and_trained():
    module = mlp()
    many = hypernetize(module, names="2.*", descriptor=4)
    assert set(many.weights(torch.randn(2, 4))) == {"2.weight", "2.bias"}
    many(torch.randn(TASKS, 4), torch.randn(TASKS, 5, 4)).sum().backward()
    shared = many.module.get_parameter("0.weight")
    assert shared.grad is not None
    assert shared.grad.abs().sum() > 0


def test_the_module_that_was_given_is_left_alone():
    module = mlp()
    before = copy.deepcopy(module.state_dict())
    many = hypernetize(module, descriptor=4, start="hyperfan")
    many(torch.randn(TASKS, 4), torch.randn(TASKS, 5, 4)).sum().backward()
    assert all(w.requires_grad and w.grad is None for w in module.parameters())
    assert all(torch.equal(w, before[n]) for n, w in module.state_dict().items())


def test_a_network_that_is_all_generated_has_no_parameters_of_its_own():
    many = hypernetize(mlp(), descriptor=4, start="hyperfan")
    assert list(many.module.parameters()) == []
    assert not any(name.startswith("module.") for name in many.state_dict())


def test_weights_that_are_tied_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    many = hypernetize(Tied(), descriptor=2, start="hyperfan")
    about, x = torch.randn(2, 2), torch.randn(2, 1, 4)
    (weight,) = many.weights(about).values()
    assert_close(many(about, x), x @ weight.mT @ weight.mT, 1e-5)


@pytest.mark.parametrize("generator", GENERATORS)
def test_hyperfan_weights_keep_the_scale_of_a_deep_relu_network(generator):
    torch.manual_seed(0)
    layers = [part for _ in range(6) for part in (nn.Linear(64, 64), nn.ReLU())]
    many = hypernetize(nn.Sequential(*layers[:-1]), generator, descriptor=8, start="hyperfan")
    with torch.no_grad():
        found = many(torch.randn(20, 8), torch.randn(20, 16, 64))
    assert 0.3 < float(found.std()) < 8


def test_hyperfan_is_the_formula():
    assert hyperfan((5, 8), relu=True, biased=True) == pytest.approx((2 / (2 * 8)) ** 0.5)
    assert hyperfan((5, 8, 3, 3), relu=False, biased=False) == pytest.approx((1 / 72) ** 0.5)
    assert hyperfan((5,), relu=True, biased=True) == pytest.approx(1.0)


def test_a_chunked_generator_serves_networks_of_any_size_with_as_many_parameters():
    def size(width, generator):
        net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))
        many = hypernetize(net, generator, descriptor=4, start="hyperfan")
        return sum(w.numel() for w in many.generator.parameters())

    for generator in GENERATORS[1:]:
        assert size(2000, generator) == size(20, generator)
    assert size(2000, "dense") > 50 * size(20, "dense")


def test_what_was_learned_is_saved_and_loaded():
    one, other = (hypernetize(mlp(), "attention", descriptor=OneHot(3)) for _ in range(2))
    for parameter in one.parameters():
        nn.init.normal_(parameter, std=0.1)
    other.load_state_dict(one.state_dict())
    about, x = torch.arange(3), torch.randn(3, 5, 4)
    assert torch.equal(one(about, x), other(about, x))


def test_dropout_differs_from_task_to_task():
    many = hypernetize(nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5)), descriptor=2)
    x = torch.randn(1, 1, 4).expand(2, 1, 4)
    dropped = many(torch.ones(2, 2), x) == 0
    assert not torch.equal(dropped[0], dropped[1])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hypernetize(mlp(), names="conv*", descriptor=4), "names='conv"),
        (lambda: hypernetize(mlp(), "dens", descriptor=4), "Did you mean 'dense'"),
        (lambda: hypernetize(nn.ReLU(), descriptor=4), "names="),
        (lambda: hypernetize(nn.Linear(5000, 5000), descriptor=4), "generator='attention'"),
        (lambda: hypernetize(mlp(), descriptor=5)(ONES[:, 0], ONES), "3, 4.*tasks, 5"),
        (lambda: hypernetize(mlp(), descriptor=4)(ONES[:, 0], ONES[:2]), "3 tasks are given"),
        (lambda: hypernetize(nn.GRU(4, 4), descriptor=4), "expected metarnn.GRU"),
        (lambda: hypernetize(nn.BatchNorm1d(4), descriptor=4)(ONES[:, 0], ONES), "running mean"),
    ],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
