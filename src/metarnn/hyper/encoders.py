"""Networks that read a sequence for the one that writes weights: from x [T, B, I] to c [T, B, C].

An encoder carries what it needs from call to call as a tuple of rows [B, n], so that a sequence
may come in pieces, or step by step; it knows lengths, and begins anew where there are `resets`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.cells import CELLS, State, cell, check
from metarnn.hyper.encoder import Encoder
from metarnn.hyper.modules import ModuleEncoder, TorchRecurrent
from metarnn.layers import Recurrent
from metarnn.layers.window import stack


class RecurrentEncoder(Encoder):
    """Any recurrent layer. In two directions it is not causal, and carries no state."""

    def __init__(self, layer: Recurrent) -> None:
        rows, causal = layer.num_layers * layer.directions, not layer.bidirectional
        sizes = tuple(rows * n for n in layer.state_sizes) if causal else ()
        super().__init__(layer.input_size, layer.output_size, sizes, causal)
        if layer.batch_first:
            check.refuse("encoder", "a batch_first layer", "time first")
        self.layer, self.rows, self.streams = layer, rows, causal

    def forward(
        self, x: Tensor, state: State, lengths: Tensor | None, resets: Tensor | None
    ) -> tuple[Tensor, State]:
        start = None
        if state:  # [B, rows · n] -> [rows, B, n]
            start = tuple(s.unflatten(-1, (self.rows, -1)).transpose(0, 1) for s in state)
        resets = None if resets is None else resets.squeeze(-1)
        c, end = self.layer(x, start, lengths=lengths, resets=resets)
        end = end if isinstance(end, tuple) else (end,)
        return c, tuple(e.transpose(0, 1).flatten(1) for e in end) if state else ()


class Convolution(Encoder):
    """c_t = tanh(W [x_{t-k+1}; …; x_t] + b), `layers` of them; nothing after t enters."""

    def __init__(self, input_size: int, output_size: int, kernel: int = 4, layers: int = 1) -> None:
        self.kernel = check.size("kernel", kernel)
        inputs = [input_size, *[output_size] * (check.size("layers", layers) - 1)]
        sizes = tuple((kernel - 1) * n for n in inputs) if kernel > 1 else ()
        super().__init__(input_size, output_size, sizes)
        self.floors = nn.ModuleList(nn.Linear(kernel * n, output_size) for n in inputs)
        for floor in self.floors:
            nn.init.xavier_uniform_(floor.weight)  # pyright: ignore[reportArgumentType]
            nn.init.zeros_(floor.bias)  # pyright: ignore[reportArgumentType]

    def forward(
        self, x: Tensor, state: State, lengths: Tensor | None, resets: Tensor | None
    ) -> tuple[Tensor, State]:
        kept = []
        for k, floor in enumerate(self.floors):
            if self.kernel > 1:
                x, past = stack(x, state[k], self.kernel, lengths, resets)
                kept.append(past)
            x = torch.tanh(floor(x))
        return x, tuple(kept)


class Transformer(Encoder):
    """Causal self-attention over the last `span` steps, in `layers` blocks (Vaswani et al. 2017).

    a = x + Attention(LN x),  c = a + W_2 relu(W_1 LN a)

    with a learned bias for each distance in place of positions. Keys and values of the past are
    what it carries.
    """

    def __init__(
        self, input_size: int, output_size: int, heads: int = 4, span: int = 16, layers: int = 1
    ) -> None:
        while output_size % check.size("heads", heads):
            heads -= 1
        self.heads, self.span = heads, check.size("span", span, least=2)
        # Of each past step keys, values and a 1 that says it was there.
        sizes = ((span - 1) * (2 * output_size + 1),) * check.size("layers", layers)
        super().__init__(input_size, output_size, sizes)
        self.enter = nn.Linear(input_size, output_size)
        self.blocks = nn.ModuleList(_Block(output_size, heads, span) for _ in range(layers))
        self.norm = nn.LayerNorm(output_size)

    def forward(
        self, x: Tensor, state: State, lengths: Tensor | None, resets: Tensor | None
    ) -> tuple[Tensor, State]:
        x, kept = self.enter(x), []
        for block, past in zip(self.blocks, state, strict=True):
            x, past = block(x, past, lengths, resets)
            kept.append(past)
        return self.norm(x), tuple(kept)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, span: int) -> None:
        super().__init__()
        self.heads, self.span = heads, span
        self.before, self.middle = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.distance = nn.Parameter(torch.zeros(heads, span))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self, x: Tensor, past: Tensor, lengths: Tensor | None, resets: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        width, span, heads = x.shape[-1], self.span, self.heads
        q, kv = self.qkv(self.before(x)).split((width, 2 * width), -1)
        seen = torch.cat([kv, torch.ones_like(kv[..., :1])], -1)
        seen, kept = stack(seen, past, span, lengths, resets)
        k, v, there = seen.unflatten(-1, (span, -1)).split((width, width, 1), -1)
        q = q.unflatten(-1, (heads, -1)).unsqueeze(-2)  # [T, B, heads, 1, d]
        k = k.unflatten(-1, (heads, -1)).transpose(-2, -3)  # [T, B, heads, span, d]
        v = v.unflatten(-1, (heads, -1)).transpose(-2, -3)
        scores = (q * k).sum(-1) / math.sqrt(width // heads) + self.distance
        scores = scores.masked_fill(there.transpose(-1, -2) == 0, -math.inf)
        attended = (scores.softmax(-1).unsqueeze(-1) * v).sum(-2).flatten(-2)
        x = x + self.mixed(attended)
        return x + self.narrow(torch.relu(self.wide(self.middle(x)))), kept


Make = Callable[[int], Any]  # from an input width to an encoder

NAMED: dict[str, Callable[[int, int], Encoder]] = {
    "input": partial(Convolution, kernel=1),
    "conv": Convolution,
    "transformer": Transformer,
}


def encoder(kind: str | nn.Module | Make, input_size: int, width: int) -> Encoder:
    """An encoder by its name, of that width; a layer of ours, a module or a function to make one.

    Names are those of cells (`lstm`, `gru`, …), `input` (x_t alone), `conv` and `transformer`.
    """
    if isinstance(kind, str):
        if kind in NAMED:
            return NAMED[kind](input_size, width)
        check.one_of("encoder", kind, [*CELLS, *NAMED])
        options = {"outputs": width} if kind == "jordan" else {}
        return RecurrentEncoder(Recurrent(cell(kind, input_size, width, **options)))
    found = kind if isinstance(kind, nn.Module) else kind(input_size)
    if isinstance(found, Recurrent):
        found = RecurrentEncoder(found)
    if isinstance(found, nn.RNNBase):
        found = TorchRecurrent(found)
    if isinstance(found, nn.Module) and not isinstance(found, Encoder):
        found = ModuleEncoder(found, input_size)
    if not isinstance(found, Encoder):
        check.refuse("encoder", type(found).__name__, "a name, a module, or a function to make one")
    if found.input_size != input_size:
        advice = "For stacks give a function from an input width to an encoder."
        check.refuse("encoder.input_size", found.input_size, f"{input_size}", advice)
    return found
