"""Equations of dynamical systems against closed forms."""

import math

import numpy as np
import pytest
import torch

from metarnn.tasks.synthetic import systems


def test_the_solver_is_of_fourth_order():
    errors = []
    for steps in (10, 20):
        s = np.array([1.0, 0.0])
        for _ in range(steps):
            s = systems.runge_kutta(lambda s: np.array([s[1], -s[0]]), s, 1 / steps)
        errors.append(math.hypot(s[0] - math.cos(1), s[1] + math.sin(1)))
    assert 14 < errors[0] / errors[1] < 18


def test_lorenz_stands_still_where_it_should():
    root = math.sqrt(8 / 3 * 27)
    for point in ([root, root, 27.0], [-root, -root, 27.0], [0.0, 0.0, 0.0]):
        still = systems.lorenz(*point, sigma=10, rho=28, beta=8 / 3)
        assert still == pytest.approx((0, 0, 0), abs=1e-12)


def test_mackey_glass_grows_by_as_much_as_it_decays_at_one():
    assert systems.mackey_glass(1.0, b=0.2) == pytest.approx(0.1)  # c x, at x = 1


def test_tensors_of_many_tasks_at_once_are_as_good_as_numbers():
    x, v, mu, strength = torch.randn(4, 5, dtype=torch.float64)
    found = torch.stack(systems.van_der_pol(x, v, mu=mu, k=strength), 1)
    for k in range(5):
        given = {"mu": float(mu[k]), "k": float(strength[k])}
        alone = systems.van_der_pol(float(x[k]), float(v[k]), **given)
        assert found[k].tolist() == pytest.approx(list(alone))
