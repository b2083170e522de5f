"""What reads a sequence for a hypernetwork."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from metarnn.cells import State


class Encoder(nn.Module):
    """c_t = e(x_1 … x_t), or of the whole sequence where it is not `causal`.

    A subclass sets these and defines `forward(x, state, lengths, resets)`: x [T, B, I], lengths
    [B] or None, resets [T, B, 1] or None -> c [T, B, output_size], and its state.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        state_sizes: tuple[int, ...] = (),
        causal: bool = True,
    ) -> None:
        super().__init__()
        self.input_size, self.output_size = input_size, output_size
        self.state_sizes, self.causal = state_sizes, causal

    def __call__(self, *args: Any) -> tuple[Tensor, State]:
        return super().__call__(*args)

    # Not so where every call begins anew: then a sequence cannot come in pieces.
    streams = True
