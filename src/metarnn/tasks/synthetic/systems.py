"""Equations of small dynamical systems, of numbers, arrays or tensors alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def lorenz(x: Any, y: Any, z: Any, *, sigma: Any, rho: Any, beta: Any) -> tuple[Any, Any, Any]:
    """Lorenz 1963: ẋ = σ(y - x), ẏ = x(ρ - z) - y, ż = xy - βz."""
    return sigma * (y - x), x * (rho - z) - y, x * y - beta * z


def van_der_pol(x: Any, v: Any, *, mu: Any, k: Any = 1.0) -> tuple[Any, Any]:
    """ẍ = μ(1 - x²)ẋ - k x, as ẋ = v and v̇; a spring of strength k pulls."""
    return v, mu * (1 - x * x) * v - k * x


def mackey_glass(late: Any, *, b: Any) -> Any:
    """What grows in ẋ = b x(t-τ) / (1 + x(t-τ)¹⁰) - c x (Mackey & Glass 1977), of x(t-τ)."""
    return b * late / (1 + late**10)


def runge_kutta(field: Callable[[Any], Any], s: Any, h: float) -> Any:
    """The state after one step of the classical method of fourth order, for ṡ = field(s).

    >>> runge_kutta(lambda s: s, 1.0, 0.1)  # e^0.1 = 1.105170918...
    1.1051708333333332
    """
    k1 = field(s)
    k2 = field(s + h / 2 * k1)
    k3 = field(s + h / 2 * k2)
    k4 = field(s + h * k3)
    return s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
