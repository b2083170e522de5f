"""Adaptation against plain autograd, one task and one step after the other."""

import time
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from metarnn.meta import SGD, Adam, adapt, objective
from tests.helpers.cases import EVERY, make, randn, randomize
from tests.helpers.compare import assert_close
from tests.helpers.memory import peak_bytes

RULES = {"sgd": SGD(0.1), "momentum": SGD(0.1, 0.9), "adam": Adam(0.05)}
TASKS = 4


def network():
    net = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    randomize(net)
    return net


def loss_of(net):
    def loss(params, batch):
        x, y = batch
        found = functional_call(net, params, (x,))
        found = found[0] if isinstance(found, tuple) else found
        return (found - y).square().mean()

    return loss


def episodes(tasks=TASKS, shots=3):
    support = randn(tasks, shots, 2), randn(tasks, shots, 1, seed=2)
    query = randn(tasks, 6, 2, seed=3), randn(tasks, 6, 1, seed=4)
    return support, query


def by_hand(params, loss, support, steps, lr, order):
    """SGD with autograd's own create_graph."""
    for _ in range(steps):
        gradients = torch.autograd.grad(
            loss(params, support), list(params.values()), create_graph=order == 2
        )
        params = {n: w - lr * g for (n, w), g in zip(params.items(), gradients, strict=True)}
    return params


@pytest.mark.parametrize("order", [1, 2])
def test_meta_gradients_are_those_of_a_loop_by_plain_autograd(order):
    net = network()
    params, loss, (support, query) = dict(net.named_parameters()), loss_of(net), episodes()
    found = objective(params, loss, support, query, 3, SGD(0.1), order)
    expected = torch.stack(
        [
            loss(
                by_hand(params, loss, [part[k] for part in support], 3, 0.1, order),
                [part[k] for part in query],
            )
            for k in range(TASKS)
        ]
    )
    assert_close(found, expected)
    wrt = list(params.values())
    assert_close(
        torch.autograd.grad(found.mean(), wrt), torch.autograd.grad(expected.mean(), wrt), 1e-10
    )


def test_order_zero_gives_the_same_weights_and_no_gradient():
    net = network()
    params, loss, (support, _) = dict(net.named_parameters()), loss_of(net), episodes()
    free = adapt(params, loss, support, 3, SGD(0.1), 0, tasks=True)
    bound = adapt(params, loss, support, 3, SGD(0.1), 2, tasks=True)
    assert_close(list(free.values()), list(bound.values()))
    assert not any(w.requires_grad for w in free.values())


@pytest.mark.parametrize("rule", RULES)
def test_many_tasks_at_once_equal_one_after_the_other(rule):
    net = network()
    params, loss, (support, _) = dict(net.named_parameters()), loss_of(net), episodes()
    together = adapt(params, loss, support, 3, RULES[rule], tasks=True)
    for k in range(TASKS):
        alone = adapt(params, loss, tuple(part[k] for part in support), 3, RULES[rule])
        assert_close([w[k] for w in together.values()], list(alone.values()))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("order", [1, 2])
def test_a_checkpointed_loop_has_the_same_result_and_gradients(rule, order):
    net = network()
    params, loss, (support, query) = dict(net.named_parameters()), loss_of(net), episodes()
    found = []
    for every in (0, 2):
        value = objective(params, loss, support, query, 5, RULES[rule], order, checkpoint=every)
        found.append([value, *torch.autograd.grad(value.mean(), list(params.values()))])
    assert_close(found[1], found[0])


def test_a_checkpointed_loop_draws_the_same_noise_twice():
    net = nn.Sequential(nn.Linear(2, 50), nn.Dropout(0.5), nn.Linear(50, 1)).double()
    params, loss, (support, query) = dict(net.named_parameters()), loss_of(net), episodes()
    found = []
    for every in (0, 2):
        torch.manual_seed(3)
        value = objective(params, loss, support, query, 2, SGD(0.01), checkpoint=every).mean()
        after = torch.rand(1)
        gradients = torch.autograd.grad(value, list(params.values()))
        found.append([value, after, torch.rand(1), *gradients])
    assert_close(found[1], found[0])


def test_a_checkpointed_loop_refuses_tensors_whose_gradient_it_would_lose():
    net, hidden = network(), torch.ones((), dtype=torch.float64, requires_grad=True)
    loss, (support, _) = loss_of(net), episodes()
    with pytest.raises(ValueError, match="in params, with checkpoint"):
        adapt(
            dict(net.named_parameters()),
            lambda w, s: hidden * loss(w, s),
            support,
            4,
            tasks=True,
            checkpoint=2,
        )


@pytest.mark.medium
def test_fifty_checkpointed_steps_take_at_most_three_times_the_memory_of_five():
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    net = net.double()
    params, loss = dict(net.named_parameters()), loss_of(net)
    support, query = episodes(TASKS, 20)

    def peak(steps, every):
        def run():
            objective(params, loss, support, query, steps, checkpoint=every).mean().backward()

        return peak_bytes(run)

    assert peak(50, 0) > 7 * peak(5, 0)  # what is measured does grow
    assert peak(50, 7) < 3 * peak(5, 7)
    assert peak(50, 7) < 3 * peak(5, 0)


def test_only_the_weights_that_are_named_adapt():
    net = network()
    params, loss, (support, query) = dict(net.named_parameters()), loss_of(net), episodes()
    found = adapt(params, loss, support, 2, SGD(0.1), names="2.*", tasks=True)
    for name, weights in found.items():
        same = all(torch.equal(w, params[name]) for w in weights)
        assert same == name.startswith("0.")
    value = objective(params, loss, support, query, 2, SGD(0.1), names=["2.*"]).mean()
    assert all(g.abs().sum() > 0 for g in torch.autograd.grad(value, list(params.values())))


def test_rates_that_are_learned_get_their_gradient():
    net = network()
    params, loss, (support, query) = dict(net.named_parameters()), loss_of(net), episodes()
    rates = {n: torch.full_like(w, 0.1).requires_grad_() for n, w in params.items()}

    def value(**options):
        return objective(params, loss, support, query, 2, SGD(rates), **options).mean()

    found = torch.autograd.grad(value(), list(rates.values()))
    again = torch.autograd.grad(value(checkpoint=1), list(rates.values()))
    assert_close(again, found)
    name, h = "2.bias", 1e-6
    with torch.no_grad():
        before = value()
        rates[name] += h
        slope = (value() - before) / h
    assert abs(float(slope - found[list(rates).index(name)])) < 1e-5


def test_generated_weights_adapt_from_where_each_task_begins():
    net = network()
    loss, (support, _) = loss_of(net), episodes()
    own = {n: randn(TASKS, *w.shape, seed=7) for n, w in net.named_parameters()}
    found = adapt(own, loss, support, 2, SGD(0.1), tasks=True, own=True)
    for k in range(TASKS):
        begin = {n: w[k] for n, w in own.items()}
        alone = adapt(begin, loss, tuple(part[k] for part in support), 2, SGD(0.1))
        assert_close([w[k] for w in found.values()], list(alone.values()))


@pytest.mark.medium
@pytest.mark.parametrize("name", EVERY)
def test_second_order_through_every_recurrent_cell(name):
    layer = make(EVERY[name], batch_first=True)
    params = dict(layer.named_parameters())

    def loss(params, x):
        return functional_call(layer, params, (x,))[0].square().mean()

    support, query = randn(2, 2, 4, 3), randn(2, 2, 4, 3, seed=5)
    value = objective(params, loss, support, query, 2, SGD(0.1)).sum()
    alone = [
        loss(by_hand(params, loss, support[k], 2, 0.1, 2), query[k]) for k in range(len(support))
    ]
    wrt = list(params.values())
    options: Any = {"allow_unused": True, "materialize_grads": True}
    expected = torch.autograd.grad(torch.stack(alone).sum(), wrt, **options)
    assert_close(torch.autograd.grad(value, wrt, **options), expected, 1e-10)


NORMED = {
    "layer norm": (lambda: [nn.Linear(4, 6), nn.LayerNorm(6)], (5, 4)),
    "batch norm": (lambda: [nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False)], (5, 4)),
    "group norm": (lambda: [nn.Linear(4, 6), nn.GroupNorm(2, 6)], (5, 4)),
    "instance norm": (lambda: [nn.Conv1d(2, 4, 3), nn.InstanceNorm1d(4, affine=True)], (5, 2, 8)),
    "attention": (lambda: [nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)], (2, 5, 8)),
}


@pytest.mark.parametrize("name", NORMED)
def test_second_order_is_right_where_that_of_vmap_is_not(name):
    layers, shape = NORMED[name]
    net = nn.Sequential(*layers()).double()
    randomize(net)
    params = dict(net.named_parameters())

    def loss(params, x):
        return functional_call(net, params, (x,)).sin().square().mean()

    support, query = randn(2, *shape), randn(2, *shape, seed=5)
    value = objective(params, loss, support, query, 2, SGD(0.1)).sum()
    with sdpa_kernel(SDPBackend.MATH):
        alone = [loss(by_hand(params, loss, support[k], 2, 0.1, 2), query[k]) for k in range(2)]
        expected = torch.autograd.grad(torch.stack(alone).sum(), list(params.values()))
    assert_close(torch.autograd.grad(value, list(params.values())), expected, 1e-10)


@pytest.mark.slow
def test_thirty_two_tasks_at_once_are_eight_times_as_fast_as_a_loop():
    net = nn.Sequential(nn.Linear(2, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
    params, loss = dict(net.named_parameters()), loss_of(net)
    support, query = ([t.float() for t in part] for part in episodes(32, 10))

    def together():
        objective(params, loss, support, query).mean().backward()

    def apart():
        for k in range(32):
            adapted = adapt(params, loss, [t[k] for t in support])
            loss(adapted, [t[k] for t in query]).backward()

    def seconds(run, count):
        run()
        began = time.perf_counter()
        for _ in range(count):
            run()
        return (time.perf_counter() - began) / count

    assert seconds(apart, 5) > 8 * seconds(together, 50)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": 3}, "order=3: expected 0, 1 or 2"),
        ({"steps": -1}, "steps=-1"),
        ({"names": "conv*"}, "names='conv"),
        ({"own": True}, "own=True: expected False without tasks"),
        ({"loss": lambda w, s: w["0.bias"]}, "one number for a task"),
        ({"tasks": True, "support": (torch.ones(2, 3), torch.ones(3))}, "one leading dimension"),
        ({"tasks": True, "support": (torch.ones(0, 3),)}, "one leading dimension"),
    ],
)
def test_what_has_no_meaning_is_refused(options, words):
    net = network()
    usual = {"loss": loss_of(net), "support": episodes()[0]}
    with pytest.raises(ValueError, match=words):
        adapt(dict(net.named_parameters()), **{**usual, **options})
