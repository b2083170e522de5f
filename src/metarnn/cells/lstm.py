from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.cells.base import Cell, Drive, Map, State, Theta
from metarnn.cells.norm import initialize, norm, vectors


class LSTM(Cell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; Gers et al. 2000).

    i_t = σ(W_ii x_t + W_hi h_{t-1} + b_i)
    f_t = σ(W_if x_t + W_hf h_{t-1} + b_f)
    g_t = tanh(W_ig x_t + W_hg h_{t-1} + b_g)
    o_t = σ(W_io x_t + W_ho h_{t-1} + b_o)
    c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t
    h_t = o_t ⊙ tanh(c_t)

    Options, which compose: `peephole` lets the gates i and f see c_{t-1} and o see c_t;
    `coupled` sets f = 1 - i; `proj_size` makes the output W_hr h_t, of that width, the state that
    returns; `layer_norm` (Ba et al. 2016) normalises W_ih x, W_hh h and, in the output, c. The
    forget gate's bias starts at `forget_bias` (Jozefowicz et al. 2015).
    """

    proj_size: int = 0
    bias: bool = True
    peephole: bool = False
    coupled: bool = False
    layer_norm: bool = False
    forget_bias: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check.size("proj_size", self.proj_size, least=0)
        if self.proj_size >= self.hidden_size:
            check.refuse("proj_size", self.proj_size, f"less than hidden_size={self.hidden_size}")
        check.number("forget_bias", self.forget_bias)

    @property
    def gates(self) -> tuple[str, ...]:
        return ("i", "g", "o") if self.coupled else ("i", "f", "g", "o")

    @property
    def states(self) -> tuple[int, ...]:
        return (self.proj_size or self.hidden_size, self.hidden_size)

    @property
    def maps(self) -> dict[str, Map]:
        rows = (self.hidden_size,) * len(self.gates)
        bias = self.bias and not self.layer_norm  # a norm has its own shift
        maps = {
            "ih": Map(self.input_size, rows, bias),
            "hh": Map(self.states[0], rows, bias, recurrent=True),
        }
        if self.proj_size:
            maps["hr"] = Map(self.hidden_size, self.proj_size, bias=False)
        return maps

    @property
    def vectors(self) -> dict[str, int]:
        H, width = self.hidden_size, self.hidden_size * len(self.gates)
        peepholes = [f"peep_{gate}" for gate in self.gates if gate != "g" and self.peephole]
        return dict.fromkeys(peepholes, H) | vectors(self, {"ih": width, "hh": width, "c": H})

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        return norm(self, theta, "ih", theta.ih(x))

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        h, c = state
        gates = drive + norm(self, theta, "hh", theta.hh(h))
        i, *f, g, o = gates.chunk(len(self.gates), -1)  # no f where it is coupled to i

        i = torch.sigmoid(self.peep(theta, "i", i, c))
        f = 1 - i if self.coupled else torch.sigmoid(self.peep(theta, "f", f[0], c))
        g = torch.tanh(g)
        c = f * c + i * g
        o = torch.sigmoid(self.peep(theta, "o", o, c))
        h = o * torch.tanh(norm(self, theta, "c", c))
        return (theta.hr(h) if self.proj_size else h), c

    def peep(self, theta: Theta, gate: str, x: Tensor, c: Tensor) -> Tensor:
        return x + getattr(theta, f"peep_{gate}") * c if self.peephole else x

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        initialize(weights)
        if self.bias and not self.coupled:
            bias = weights["shift_ih" if self.layer_norm else "bias_ih"]
            bias[self.hidden_size : 2 * self.hidden_size] = self.forget_bias
