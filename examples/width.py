"""The more sigmoid units, the closer a recurrent network follows a dynamical system.

x_{t+1} = x_t + h V σ(W x_t + b) is Euler's method for ẋ = V σ(W x + b), and with enough units that
is any field one likes. Here W and b are drawn, V is solved so that it is van der Pol's field.

    python examples/width.py        # draws width.svg
"""

from pathlib import Path

import torch
from torch import Tensor

import metarnn
from metarnn import Cell, Map
from metarnn.graph.files import write
from metarnn.report.curves import curves

H, STEPS, WIDTHS = 0.01, 1000, (8, 16, 32, 64, 128)


class Units(Cell):
    """x + h V σ(W x + b), x of two numbers."""

    units: int

    @property
    def maps(self):
        W = Map(self.hidden_size, self.units, recurrent=True)
        return {"W": W, "V": Map(self.units, self.hidden_size, bias=False)}

    def step(self, theta, drive, state):
        (x,) = state
        return (x + H * theta.V(torch.sigmoid(theta.W(x))),)


def field(x: Tensor) -> Tensor:
    """van der Pol's oscillator."""
    return torch.stack([x[:, 1], (1 - x[:, 0] ** 2) * x[:, 1] - x[:, 0]], 1)


def network(units: int, seed: int = 0) -> metarnn.Recurrent:
    torch.manual_seed(seed)
    layer = metarnn.Recurrent(Units(0, 2, units)).double()
    weights = layer.weights(0)
    with torch.no_grad():
        weights["weight_W"].copy_(torch.randn(units, 2) * 1.5)
        weights["bias_W"].copy_(torch.randn(units) * 3)
        x = (torch.rand(4000, 2, dtype=torch.float64) - 0.5) * torch.tensor([6.0, 8.0])
        hidden = torch.sigmoid(x @ weights["weight_W"].T + weights["bias_W"])
        weights["weight_V"].copy_(torch.linalg.lstsq(hidden, field(x)).solution.T)
    return layer


def main(out: Path = Path("width.svg")) -> dict[int, float]:
    truth = [torch.tensor([[2.0, 0.0]], dtype=torch.float64)]
    for _ in range(STEPS):
        truth.append(truth[-1] + H * field(truth[-1]))
    found = {}
    for units in WIDTHS:
        with torch.no_grad():
            y, _ = network(units)(None, truth[0], steps=STEPS)
        found[units] = (y.view(-1, 2) - torch.cat(truth[1:])).norm(dim=1).clamp(max=10).tolist()
    shown = {f"{n} units": [(H * t, g) for t, g in enumerate(c, 1)] for n, c in found.items()}
    write(out, curves(shown, "Error over time by number of units", along="time"))
    return {units: max(gaps) for units, gaps in found.items()}


if __name__ == "__main__":
    print(main())
