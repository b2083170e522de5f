"""Starting values of a layer's weights."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from metarnn.cells import Cell

SCHEMES = ("orthogonal", "small", "torch")


def initialize(cell: Cell, weights: Mapping[str, Tensor], scheme: str) -> None:
    """Fill a cell's weights in place.

    "orthogonal": each gate of a recurrent map orthogonal (Saxe et al. 2014), each gate of the
    others Xavier uniform, biases and vectors 0, then what the cell itself asks for (a forget
    bias, gains of 1, heads that start at 0). "small": the same with half of that orthogonal
    matrix, which wide units learn from sooner. "torch": everything U(-1/√H, 1/√H) as in torch.nn,
    gains of 1.
    """
    if any(weight.is_meta for weight in weights.values()):
        return
    with torch.no_grad():
        if scheme == "torch":
            bound = 1 / math.sqrt(cell.hidden_size)
            for weight in weights.values():
                weight.uniform_(-bound, bound)
            for name, weight in weights.items():
                if name.startswith("gain_"):
                    weight.fill_(1)
            return
        for weight in weights.values():
            weight.zero_()
        for name, m in cell.maps.items():
            for gate in weights[f"weight_{name}"].split(m.gates):
                if gate.numel():
                    # QR is for full precision only.
                    start = torch.empty_like(
                        gate, dtype=torch.promote_types(gate.dtype, torch.float32)
                    )
                    if m.recurrent:
                        nn.init.orthogonal_(start, 0.5 if scheme == "small" else 1.0)
                    else:
                        nn.init.xavier_uniform_(start)
                    gate.copy_(start)
        cell.initialize(weights)
