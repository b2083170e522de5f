"""Trajectories of small dynamical systems: Lorenz, Mackey–Glass, van der Pol."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metarnn.cells.check import size

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
            a = field(x)
            b = field(x + h / 2 * a)
            c = field(x + h / 2 * b)
            d = field(x + h * c)
            x = x + h / 6 * (a + 2 * b + 2 * c + d)
    return found


def lorenz(steps: int, *, dt: float = 0.05, seed: int = 0) -> np.ndarray:
    """Lorenz 1963: ẋ = 10(y - x), ẏ = x(28 - z) - y, ż = xy - 8z/3.

    [steps, 3], on the attractor.
    """
    size("steps", steps)

    def field(s: np.ndarray) -> np.ndarray:
        x, y, z = s
        return np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    start = np.array([1.0, 1.0, 20.0]) + np.random.default_rng(seed).normal(0, 1, 3)
    return integrate(field, start, steps + 200, dt, inner=10)[200:]


def van_der_pol(steps: int, *, mu: float = 2.0, dt: float = 0.1, seed: int = 0) -> np.ndarray:
    """van der Pol's oscillator: ẋ = y, ẏ = μ(1 - x²)y - x; [steps, 2], on its limit cycle."""
    size("steps", steps)
    start = np.random.default_rng(seed).normal(0, 1, 2)
    found = integrate(
        lambda s: np.array([s[1], mu * (1 - s[0] ** 2) * s[1] - s[0]]),
        start, steps + 200, dt, inner=5,
    )  # fmt: skip
    return found[200:]


def mackey_glass(
    steps: int, *, tau: float = 17.0, dt: float = 1.0, seed: int = 0, inner: int = 10
) -> np.ndarray:
    """Mackey & Glass 1977: ẋ = 0.2 x(t-τ) / (1 + x(t-τ)¹⁰) - 0.1 x.

    [steps, 1], chaotic for τ = 17.
    """
    size("steps", steps)
    h = dt / inner
    lag = round(tau / h)
    past = 1.2 + np.random.default_rng(seed).normal(0, 0.05)
    x = np.full(lag + 1 + (steps + 200) * inner, past)
    for t in range(lag, len(x) - 1):
        gain = 0.2 * x[t - lag] / (1 + x[t - lag] ** 10)
        # The delayed term is held over a step, so the rest has an exact solution.
        x[t + 1] = x[t] * np.exp(-0.1 * h) + gain * (1 - np.exp(-0.1 * h)) / 0.1
    return x[lag + 1 :: inner][200 : 200 + steps, None]
