"""From the last state of an encoder to the first of a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Bridge(nn.Module):
    """s_k = tanh(W [all parts and directions of the encoder's layer k]), for each decoder layer k.

    A decoder with more layers than the encoder reads its last one for them. Where both are made
    alike, with one direction, states pass as they are and there is nothing to learn.

    >>> from metarnn.layers import GRU, LSTM
    >>> encoder = LSTM(8, 16, bidirectional=True)
    >>> bridge = Bridge(encoder, [GRU(8, 24)])
    >>> _, final = encoder(torch.randn(5, 2, 8))
    >>> bridge(final)[0].shape
    torch.Size([1, 2, 24])
    """

    def __init__(self, encoder: Any, layers: Sequence[Any]) -> None:
        super().__init__()
        self.directions = 2 if encoder.bidirectional else 1
        self.depth = encoder.num_layers
        self.sizes = [tuple(layer.state_sizes) for layer in layers]
        same = all(size == tuple(encoder.state_sizes) for size in self.sizes)
        self.direct = same and self.directions == 1 and self.depth == len(layers)
        inputs = sum(encoder.state_sizes) * self.directions
        maps = [] if self.direct else [nn.Linear(inputs, sum(size)) for size in self.sizes]
        self.maps = nn.ModuleList(maps)

    def forward(self, final: Tensor | tuple[Tensor, ...]) -> tuple[Any, ...]:
        parts = (final,) if isinstance(final, Tensor) else final  # each [layers × directions, B, n]
        found = []
        for k, sizes in enumerate(self.sizes):
            first = min(k, self.depth - 1) * self.directions
            rows = [part[first : first + self.directions] for part in parts]
            if not self.direct:
                flat = torch.cat([row for part in rows for row in part], -1)
                rows = torch.tanh(self.maps[k](flat)).unsqueeze(0).split(list(sizes), -1)
            found.append(rows[0] if len(rows) == 1 else tuple(rows))
        return tuple(found)
