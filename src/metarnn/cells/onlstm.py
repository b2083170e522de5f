from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.cells.base import Cell, Drive, Map, State, Theta


class ONLSTM(Cell):
    """The ordered-neurons LSTM (Shen et al. 2019): low units hold short spans, high ones long.

    i, f, o = σ(W x_t + U h_{t-1} + b),  g = tanh(W_g x_t + U_g h_{t-1} + b_g)
    F = cumax(W_F x_t + U_F h_{t-1} + b_F),  I = 1 - cumax(W_I x_t + U_I h_{t-1} + b_I)
    w = F ⊙ I
    c_t = (f ⊙ w + F - w) ⊙ c_{t-1} + (i ⊙ w + I - w) ⊙ g
    h_t = o ⊙ tanh(c_t)

    cumax(·) = cumsum(softmax(·)). The master gates F, I have one value for each `chunk` units.
    """

    chunk: int = 1
    bias: bool = True
    forget_bias: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check.size("chunk", self.chunk)
        check.number("forget_bias", self.forget_bias)
        if self.hidden_size % self.chunk:
            check.refuse("chunk", self.chunk, f"a divisor of hidden_size={self.hidden_size}")

    @property
    def rows(self) -> tuple[int, ...]:
        """Widths of i, f, g, o and of the master gates F, I."""
        H, levels = self.hidden_size, self.hidden_size // self.chunk
        return (H, H, H, H, levels, levels)

    @property
    def states(self) -> tuple[int, ...]:
        return (self.hidden_size, self.hidden_size)

    @property
    def maps(self) -> dict[str, Map]:
        return {
            "ih": Map(self.input_size, self.rows, self.bias),
            "hh": Map(self.hidden_size, self.rows, self.bias, recurrent=True),
        }

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        return theta.ih(x)

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        h, c = state
        i, f, g, o, F, I = (drive + theta.hh(h)).split(self.rows, -1)
        i, f, o = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o)
        g = torch.tanh(g)
        F = cumax(F).repeat_interleave(self.chunk, -1)
        I = (1 - cumax(I)).repeat_interleave(self.chunk, -1)
        w = F * I
        c = (f * w + F - w) * c + (i * w + I - w) * g
        return o * torch.tanh(c), c

    def levels(self, theta: Theta, drive: Drive, h: Tensor) -> tuple[Tensor, Tensor]:
        """The expected levels (d_f, d_i) of steps whose last output was h: [..., H] → [...].

        d_f, how far up the history is erased, is E[d] = Σ_k P(d > k) = Σ_k (1 - F_k);
        d_i, how far up the input writes, is Σ_k I_k. Both lie in [0, levels - 1].
        """
        *_, F, I = (drive + theta.hh(h)).split(self.rows, -1)
        return (1 - cumax(F)).sum(-1), (1 - cumax(I)).sum(-1)

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        if self.bias:
            weights["bias_ih"][self.hidden_size : 2 * self.hidden_size] = self.forget_bias


def cumax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1).cumsum(-1)
