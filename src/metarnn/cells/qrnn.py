from __future__ import annotations

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.cells.base import Drive, LinearCell, Map, State, Theta


class QRNN(LinearCell):
    """The quasi-recurrent network (Bradbury et al. 2017): a convolution over time, then pooling.

    z_t = tanh(W_z x_{t-k+1:t} + b_z),  f_t, o_t, i_t = σ(W x_{t-k+1:t} + b)      window = k
    c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ z_t,  h_t = c_t                             pooling="f"
    c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ z_t,  h_t = o_t ⊙ c_t                       pooling="fo"
    c_t = f_t ⊙ c_{t-1} + i_t ⊙ z_t,        h_t = o_t ⊙ c_t                       pooling="ifo"
    """

    window: int = 2
    pooling: str = "fo"
    bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check.size("window", self.window)
        check.one_of("pooling", self.pooling, ["f", "fo", "ifo"])

    @property
    def maps(self) -> dict[str, Map]:
        gates = ("z", *self.pooling)
        return {
            "ih": Map(self.window * self.input_size, (self.hidden_size,) * len(gates), self.bias)
        }

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        gates = theta.ih(x).split(self.hidden_size, -1)
        drive = {
            name: torch.sigmoid(gate) for name, gate in zip(self.pooling, gates[1:], strict=True)
        }
        return drive | {"z": torch.tanh(gates[0])}

    def affine(self, theta: Theta, drive: Drive) -> tuple[tuple[Tensor, Tensor], ...]:
        f = drive["f"]
        i = drive["i"] if "i" in drive else 1 - f
        return ((f, i * drive["z"]),)

    def output(self, theta: Theta, drive: Drive, state: State) -> Tensor:
        (c,) = state
        return drive["o"] * c if "o" in drive else c
