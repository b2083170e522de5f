"""Models that compute their own loss, as gradient rules ask for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from metarnn import Cell
from metarnn.gradients import BPTT
from tests.helpers.cases import make, randn


class Regression(nn.Module):
    """A layer with a linear read-out; the loss is the squared error, summed."""

    def __init__(self, layer: nn.Module, width: int, before: nn.Module | None = None) -> None:
        super().__init__()
        self.before = nn.Identity() if before is None else before
        self.layer, self.readout = layer, nn.Linear(width, 2, dtype=torch.float64)

    def forward(self, chunk: tuple[Tensor, Tensor], state: Any) -> tuple[Tensor, Any]:
        x, y = chunk
        h, state = self.layer(self.before(x), state)
        return (self.readout(h) - y).square().sum(), state


def regression(cell: Cell, num_layers: int = 1, **options: Any) -> Regression:
    torch.manual_seed(0)
    layer = make(cell, num_layers, **options)
    return Regression(layer, layer.output_size)


def data(steps: int = 9, batch: int = 2, inputs: int = 3) -> tuple[Tensor, Tensor]:
    return randn(steps, batch, inputs), randn(steps, batch, 2, seed=5)


def through(rule: Any, model: nn.Module, chunk: Any, cuts: tuple[int, ...]) -> dict[str, Tensor]:
    """The sum of a rule's gradients over pieces of a chunk, with what is carried between them."""
    total: dict[str, Tensor] = {}
    carried, begin = None, 0
    for end in (*cuts, len(chunk[0])):
        found = rule.step(model, tuple(t[begin:end] for t in chunk), carried)
        for name, grad in found.named.items():
            total[name] = total.get(name, torch.zeros_like(grad)) + grad
        carried, begin = found.carried, end
    return total


def exact(model: nn.Module, chunk: Any) -> dict[str, Tensor]:
    return BPTT().step(model, chunk).named


def flat(named: dict[str, Tensor]) -> Tensor:
    return torch.cat([named[name].flatten() for name in sorted(named)])


def close(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float = 1e-10) -> None:
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=tolerance, rtol=tolerance)
