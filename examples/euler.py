"""A recurrent network that is Euler's method.

For ẋ = f(x) that method repeats x_{t+1} = x_t + h f(x_t): a recurrent unit without input, whose
state is x. Here f is van der Pol's oscillator, and halving h halves the error.

    python examples/euler.py        # draws euler.svg
"""

from pathlib import Path

import numpy as np
import torch

import metarnn
from metarnn import Cell
from metarnn.graph.files import write
from metarnn.report.curves import curves
from metarnn.tasks.synthetic.dynamics import integrate

START, TIME = (2.0, 0.0), 10.0


class VanDerPol(Cell):
    """(x, v) + h (v, μ(1 - x²) v - x)."""

    h: float

    @property
    def vectors(self):
        return {"mu": 1}

    @property
    def states(self):
        return 1, 1

    @property
    def output_size(self):
        return 2

    def step(self, theta, drive, state):
        x, v = state
        return x + self.h * v, v + self.h * (theta.mu * (1 - x * x) * v - x)

    def output(self, theta, drive, state):
        return torch.cat(state, -1)


def orbit(h: float) -> np.ndarray:
    """The states at the times h, 2h, …, [n, 2]."""
    layer = metarnn.Recurrent(VanDerPol(0, 1, h)).double()
    torch.nn.init.ones_(layer.weights(0)["mu"])
    start = tuple(torch.full((1, 1), value, dtype=torch.float64) for value in START)
    with torch.no_grad():
        return layer(None, start, steps=round(TIME / h))[0].view(-1, 2).numpy()


def field(s: np.ndarray) -> np.ndarray:
    return np.array([s[1], (1 - s[0] ** 2) * s[1] - s[0]])


def errors(h: float) -> list[tuple[float, float]]:
    """How far it is from the truth, over time."""
    n = round(TIME / h)
    truth = integrate(field, np.array(START), n + 1, h, inner=10)
    gaps = np.linalg.norm(orbit(h) - truth[1:], axis=1)
    return [(h * (k + 1), float(gap)) for k, gap in enumerate(gaps)]


def main(out: Path = Path("euler.svg")) -> dict[str, float]:
    found = {f"h = {h:g}": errors(h) for h in (0.04, 0.02, 0.01, 0.005)}
    write(out, curves(found, "Euler's method as a recurrent network: its error", along="time"))
    return {name: max(gap for _, gap in curve) for name, curve in found.items()}


if __name__ == "__main__":
    print(main())
