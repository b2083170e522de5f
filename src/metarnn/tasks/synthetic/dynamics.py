"""Trajectories of small dynamical systems: Lorenz, Mackey–Glass, van der Pol."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metarnn.cells.check import size
from metarnn.tasks.synthetic import systems

Field = Callable[[np.ndarray], np.ndarray]


def integrate(field: Field, start: np.ndarray, steps: int, dt: float, inner: int = 1) -> np.ndarray:
    """ẋ = field(x) by Runge and Kutta's method of fourth order: [steps, n], every dt.

    >>> circle = integrate(lambda x: np.array([-x[1], x[0]]), np.array([1.0, 0.0]), 2, np.pi, 200)
    >>> np.allclose(circle, [[1, 0], [-1, 0]], atol=1e-6)
    True
    """
    x, h = np.asarray(start, np.float64), dt / inner
    found = np.empty((steps, len(x)))
    for t in range(steps):
        found[t] = x
        for _ in range(inner):
            x = systems.runge_kutta(field, x, h)
    return found


def lorenz(steps: int, *, dt: float = 0.05, seed: int = 0) -> np.ndarray:
    """Lorenz's system with σ = 10, ρ = 28, β = 8/3: [steps, 3], on the attractor."""
    size("steps", steps)

    def field(s: np.ndarray) -> np.ndarray:
        return np.array(systems.lorenz(*s, sigma=10, rho=28, beta=8 / 3))

    start = np.array([1.0, 1.0, 20.0]) + np.random.default_rng(seed).normal(0, 1, 3)
    return integrate(field, start, steps + 200, dt, inner=10)[200:]


def van_der_pol(steps: int, *, mu: float = 2.0, dt: float = 0.1, seed: int = 0) -> np.ndarray:
    """van der Pol's oscillator: [steps, 2], on its limit cycle."""
    size("steps", steps)

    def field(s: np.ndarray) -> np.ndarray:
        return np.array(systems.van_der_pol(*s, mu=mu))

    start = np.random.default_rng(seed).normal(0, 1, 2)
    return integrate(field, start, steps + 200, dt, inner=5)[200:]


def mackey_glass(
    steps: int, *, tau: float = 17.0, dt: float = 1.0, seed: int = 0, inner: int = 10
) -> np.ndarray:
    """Mackey and Glass's equation with b = 0.2, c = 0.1: [steps, 1], chaotic for τ = 17."""
    size("steps", steps)
    h = dt / inner
    lag = round(tau / h)
    past = 1.2 + np.random.default_rng(seed).normal(0, 0.05)
    x = np.full(lag + 1 + (steps + 200) * inner, past)
    for t in range(lag, len(x) - 1):
        gain = systems.mackey_glass(x[t - lag], b=0.2)
        # The delayed term is held over a step, so the rest has an exact solution.
        x[t + 1] = x[t] * np.exp(-0.1 * h) + gain * (1 - np.exp(-0.1 * h)) / 0.1
    return x[lag + 1 :: inner][200 : 200 + steps, None]
