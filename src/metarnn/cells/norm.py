"""Layer norm (Ba et al. 2016) as an option of a cell: LN(x) = gain ⊙ (x - mean) / std + shift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor
from torch.nn import functional as F

from metarnn.cells.base import Theta


class Normed(Protocol):
    @property
    def layer_norm(self) -> bool: ...
    @property
    def bias(self) -> bool: ...


def vectors(cell: Normed, widths: Mapping[str, int]) -> dict[str, int]:
    """The gains and shifts to declare for what is normalised, by name."""
    if not cell.layer_norm:
        return {}
    kinds = ("gain", "shift") if cell.bias else ("gain",)
    return {f"{kind}_{name}": width for kind in kinds for name, width in widths.items()}


def norm(cell: Normed, theta: Theta, name: str, x: Tensor) -> Tensor:
    """LN(x) with the gain and shift of that name, or x where the cell has no layer norm."""
    if not cell.layer_norm:
        return x
    shift = getattr(theta, f"shift_{name}") if cell.bias else None
    return F.layer_norm(x, x.shape[-1:], getattr(theta, f"gain_{name}"), shift)


def initialize(weights: Mapping[str, Tensor]) -> None:
    for name, weight in weights.items():
        if name.startswith("gain_"):
            weight.fill_(1)
