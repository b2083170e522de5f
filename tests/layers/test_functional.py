"""torch.func, torch.compile, copies, dtypes and devices."""

import copy
import shutil

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacfwd, jacrev, vmap

import metarnn
from tests.helpers.cases import EVERY, make, parts, randn, random_state, randomize
from tests.helpers.compare import assert_close, assert_same

X = randn(3, 2, 3)


def loss_of(layer):
    def loss(weights, x=X):
        output, final = functional_call(layer, weights, (x,))
        return output.square().sum() + sum(part.sin().sum() for part in parts(final))

    return loss


def weight_sets(layer, count=3):
    sets = []
    for seed in range(count):
        randomize(layer, seed)
        sets.append({name: p.detach().clone() for name, p in layer.named_parameters()})
    return sets, {name: torch.stack([w[name] for w in sets]) for name in sets[0]}


@pytest.mark.parametrize("name", EVERY)
def test_vmap_of_grad_of_grad_over_weight_sets_equals_a_loop(name):
    layer = make(EVERY[name])
    loss = loss_of(layer)
    sets, stacked = weight_sets(layer)

    def squared_gradient(weights):
        return sum(g.square().sum() for g in grad(loss)(weights).values())

    found = vmap(grad(squared_gradient))(stacked)
    for k, weights in enumerate(sets):  # by plain autograd, and where it fits the native engine
        leaves = [w.requires_grad_() for w in weights.values()]
        first = torch.autograd.grad(loss(weights), leaves, create_graph=True)
        second = torch.autograd.grad([g.square().sum() for g in first], leaves)
        assert_close([found[name][k] for name in weights], second)


@pytest.mark.parametrize("name", EVERY)
def test_a_weight_set_for_every_sequence_equals_a_loop(name):
    layer = make(EVERY[name], 2, bidirectional=True)
    sets, stacked = weight_sets(layer)
    x = randn(3, 4, 2, 3)  # [sets, T, B, I]
    found = vmap(lambda w, x: functional_call(layer, w, (x,)))(stacked, x)
    for k, weights in enumerate(sets):
        expected = functional_call(layer, weights, (x[k],))
        assert_close([found[0][k], [p[k] for p in parts(found[1])]], expected)


@pytest.mark.parametrize("name", EVERY)
def test_forward_and_reverse_jacobians_agree_with_autograd(name):
    layer = make(EVERY[name])
    weights = {name: p.detach() for name, p in layer.named_parameters()}
    first = next(iter(weights))

    def output(weight):
        return functional_call(layer, weights | {first: weight}, (X,))[0].sum((0, 1))

    expected = torch.autograd.functional.jacobian(output, weights[first])
    assert_close(jacrev(output)(weights[first]), expected)
    assert_close(jacfwd(output)(weights[first]), expected)


@pytest.mark.parametrize("name", EVERY)
def test_functional_call_uses_the_weights_it_is_given_and_leaves_the_layers_alone(name):
    layer = make(EVERY[name])
    before = copy.deepcopy(layer.state_dict())
    other = copy.deepcopy(layer)
    randomize(other, seed=5)
    assert_same(functional_call(layer, dict(other.named_parameters()), (X,)), other(X))
    assert_same(list(layer.state_dict().values()), list(before.values()))


@pytest.mark.parametrize("name", EVERY)
def test_a_deep_copy_computes_the_same_and_trains_apart(name):
    layer = make(EVERY[name], 2, zoneout=0.3).eval()
    twin = copy.deepcopy(layer)
    assert_same(twin(X), layer(X))
    randomize(twin, seed=5)
    assert not torch.equal(twin(X)[0], layer(X)[0])


@pytest.mark.parametrize("name", EVERY)
def test_a_layer_moves_to_another_dtype(name):
    layer = make(EVERY[name], 2, bidirectional=True)
    expected = layer(X)
    narrow = layer.to(torch.float32)(X.float())
    assert all(t.dtype == torch.float32 for t in (narrow[0], *parts(narrow[1])))
    assert_close(narrow, expected, 1e-5)
    output, final = layer.to(torch.bfloat16)(X.bfloat16())
    assert all(t.dtype == torch.bfloat16 for t in (output, *parts(final)))
    assert_close([output, final], expected, 0.1)


@pytest.mark.parametrize("name", EVERY)
def test_autocast_stays_close_and_lets_gradients_through(name):
    layer = make(EVERY[name], 2, dtype=torch.float32)
    torch.manual_seed(0)  # of some draws layer norm makes more of the rounding than is asked for
    below = nn.Linear(3, 3)  # under autocast its output is bfloat16
    expected, final = layer(below(X.float()))
    with torch.autocast("cpu", torch.bfloat16):
        output, end = layer(below(X.float()), random_state(layer, 2))
        output, end = layer(below(X.float()))
        loss = output.float().square().sum()
    assert_close([output, end], [expected, final], 0.05)
    gradients = torch.autograd.grad(loss, [*layer.parameters(), *below.parameters()])
    assert all(g.isfinite().all() for g in gradients)
    wanted = torch.autograd.grad(expected.square().sum(), [*layer.parameters()])
    assert_close(gradients[: len(wanted)], wanted, 0.1)


@pytest.mark.parametrize("name", EVERY)
def test_a_layer_built_on_the_meta_device_gets_its_weights_later(name):
    layer = metarnn.Recurrent(EVERY[name], 2, device="meta")
    assert all(p.is_meta for p in layer.parameters())
    layer.to_empty(device="cpu")
    torch.manual_seed(3)
    layer.reset_parameters()
    torch.manual_seed(3)
    direct = metarnn.Recurrent(EVERY[name], 2)
    assert_same(list(layer.parameters()), list(direct.parameters()))


@pytest.mark.parametrize("name", EVERY)
def test_shapes_are_found_on_the_meta_device_without_computing(name):
    layer = metarnn.Recurrent(EVERY[name], 2, bidirectional=True, device="meta")
    output, final = layer(torch.zeros(5, 2, 3, device="meta"))
    assert output.shape == (5, 2, layer.output_size)
    assert [part.shape for part in parts(final)] == [(4, 2, n) for n in layer.state_sizes]


@pytest.mark.parametrize("name", ["elman", "lstm", "gru"])
def test_parametrised_weights_are_read_at_each_call_and_trained(name):
    layer = make(EVERY[name])
    expected = layer(X)
    nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")
    assert_close(layer(X), expected)
    layer(X)[0].sum().backward()
    scale = layer.parametrizations.weight_hh_l0.original0
    assert scale.grad.abs().max() > 0
    with torch.no_grad():
        scale *= 0
    plain = make(EVERY[name])
    nn.init.zeros_(plain.weight_hh_l0)
    assert_close(layer(X), plain(X))


def test_an_orthogonal_parametrisation_stays_orthogonal_while_training():
    layer = make(EVERY["elman"])
    nn.utils.parametrizations.orthogonal(layer, "weight_hh_l0")
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.weight_hh_l0.detach().clone()
    for _ in range(3):
        optimiser.zero_grad()
        layer(X)[0].square().sum().backward()
        optimiser.step()
    weight = layer.weight_hh_l0
    assert not torch.allclose(weight, before)
    assert_close(weight @ weight.T, torch.eye(4, dtype=torch.float64))


@pytest.mark.medium
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ["lstm", "qrnn-2"])
def test_a_model_around_a_layer_compiles(name, backend):
    if backend == "inductor" and not shutil.which("g++"):
        pytest.skip("inductor needs a C++ compiler")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.below, self.layer = nn.Linear(3, 3), make(EVERY[name], dtype=torch.float32)
            self.above = nn.Linear(4, 2)

        def forward(self, x):
            return self.above(self.layer(self.below(x).tanh())[0]).sin()

    torch._dynamo.reset()
    model = Model()
    compiled = torch.compile(model, backend=backend)
    results = []
    for run in (model, compiled):
        output = run(X.float())
        results.append([output, torch.autograd.grad(output.sum(), list(model.parameters()))])
    assert_close(results[1], results[0], 1e-5)
