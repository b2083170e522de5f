"""Starting values for long memories (Tallec & Ollivier 2018)."""

from __future__ import annotations

import torch

from metarnn import cells
from metarnn.layers.recurrent import Recurrent


def chrono(layer: Recurrent, length: int) -> bool:
    """Set the gates of an LSTM or a GRU so that units remember for 1 to `length` steps at first.

    b_f ~ log U(1, length - 1), b_i = -b_f; for a GRU b_z, by which the old state is kept. Other
    units stay as they are, and False is returned.

    >>> from metarnn.layers import GRU
    >>> chrono(GRU(3, 8), 100)
    True
    """
    unit, n = layer.cell, layer.cell.hidden_size
    known: dict[type, tuple[int, int | None]] = {cells.LSTM: (1, 0), cells.GRU: (1, None)}
    gates = known.get(type(unit))  # what keeps, what enters
    if gates is None:
        return False
    with torch.no_grad():
        for k, direction in layer.rows():
            weights = layer.weights(k, direction)
            kept = torch.empty(n).uniform_(1, max(length - 1, 2)).log()
            for name, share in (("bias_ih", 1.0), ("bias_hh", 0.0)):
                if name in weights:
                    keeps, enters = gates
                    bias = weights[name].view(-1, n)
                    bias[keeps] = kept * share
                    if enters is not None:
                        bias[enters] = -kept * share
    return True
