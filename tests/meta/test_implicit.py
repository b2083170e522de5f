"""Implicit gradients against closed forms and against loops differentiated step by step."""

import pytest
import torch

from metarnn.meta import SGD, Adam, implicit, objective
from tests.helpers.cases import randn
from tests.helpers.compare import assert_close
from tests.meta.test_adapt import episodes, loss_of, network

TASKS, N, STRENGTH = 3, 4, 1.0


def test_the_gradient_of_a_quadratic_problem_is_the_closed_form():
    # L(w) = ½ wᵀA w - bᵀw, so that w* = (A + s)⁻¹ (b + s θ) and ∂w*/∂θ = s (A + s)⁻¹
    a = randn(TASKS, N, N)
    a, b = a @ a.mT / N, randn(TASKS, N, seed=2)
    theta = randn(N, seed=3).requires_grad_()

    def loss(w, support):
        a, b = support
        return 0.5 * w["w"] @ a @ w["w"] - b @ w["w"]

    found = implicit({"w": theta}, loss, (a, b), 300, SGD(0.2), strength=STRENGTH, iterations=N)
    whole = a + STRENGTH * torch.eye(N, dtype=a.dtype)
    assert_close(found["w"], torch.linalg.solve(whole, b + STRENGTH * theta), 1e-9)
    v = randn(TASKS, N, seed=5)
    (gradient,) = torch.autograd.grad(found["w"], theta, v)
    assert_close(gradient, (STRENGTH * torch.linalg.solve(whole, v)).sum(0), 1e-9)


def test_it_agrees_with_a_long_loop_differentiated_step_by_step():
    net = network()
    params, loss, (support, query) = dict(net.named_parameters()), loss_of(net), episodes(2)
    strength, steps = 2.0, 120

    def near(w, support):
        apart = sum((w[n] - params[n]).square().sum() for n in w)
        return loss(w, support) + strength / 2 * apart

    long = objective(params, near, support, query, steps, SGD(0.1), query_loss=loss).mean()
    found = implicit(params, loss, support, steps, SGD(0.1), strength=strength, iterations=20)
    short = torch.func.vmap(loss)(found, query).mean()
    wrt = list(params.values())
    assert_close(short, long, 1e-9)
    assert_close(torch.autograd.grad(short, wrt), torch.autograd.grad(long, wrt), 1e-6)


def test_each_task_may_begin_with_weights_of_its_own():
    net = network()
    loss, (support, query) = loss_of(net), episodes(2)
    own = {n: randn(2, *w.shape, seed=7).requires_grad_() for n, w in net.named_parameters()}
    found = implicit(own, loss, support, 20, Adam(0.01), own=True)
    torch.func.vmap(loss)(found, query).sum().backward()
    for w in own.values():
        assert w.grad is not None
        assert (w.grad.flatten(1).abs().sum(1) > 0).all()


def test_a_strength_of_zero_is_refused():
    with pytest.raises(ValueError, match=r"strength=0.*above 0"):
        implicit({"w": torch.ones(1)}, lambda w, s: w["w"].sum(), torch.ones(1, 1), strength=0)
