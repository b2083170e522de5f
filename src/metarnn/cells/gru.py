from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.cells.base import Cell, Drive, Map, State, Theta
from metarnn.cells.norm import initialize, norm, vectors


class GRU(Cell):
    """The gated recurrent unit (Cho et al. 2014).

    r_t = σ(W_ir x_t + W_hr h_{t-1} + b_r)
    z_t = σ(W_iz x_t + W_hz h_{t-1} + b_z)
    n_t = tanh(W_in x_t + b_in + r_t ⊙ (W_hn h_{t-1} + b_hn))      reset="after", as torch.nn
    n_t = tanh(W_in x_t + b_in + W_hn (r_t ⊙ h_{t-1}) + b_hn)      reset="before", the original
    h_t = (1 - z_t) ⊙ n_t + z_t ⊙ h_{t-1}

    `layer_norm` normalises each matrix product before it is added.
    """

    bias: bool = True
    reset: str = "after"
    layer_norm: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check.one_of("reset", self.reset, ["after", "before"])

    @property
    def maps(self) -> dict[str, Map]:
        H, bias = self.hidden_size, self.bias and not self.layer_norm
        if self.reset == "after":
            recurrent = {"hh": Map(H, (H, H, H), bias, recurrent=True)}
        else:
            recurrent = {
                "hh": Map(H, (H, H), bias, recurrent=True),
                "hn": Map(H, H, bias, recurrent=True),
            }
        return {"ih": Map(self.input_size, (H, H, H), bias), **recurrent}

    @property
    def vectors(self) -> dict[str, int]:
        return vectors(self, {name: m.outputs for name, m in self.maps.items()})

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        return norm(self, theta, "ih", theta.ih(x))

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        (h,) = state
        xr, xz, xn = drive.chunk(3, -1)
        if self.reset == "after":
            hr, hz, hn = norm(self, theta, "hh", theta.hh(h)).chunk(3, -1)
            r = torch.sigmoid(xr + hr)
            n = torch.tanh(xn + r * hn)
        else:
            hr, hz = norm(self, theta, "hh", theta.hh(h)).chunk(2, -1)
            r = torch.sigmoid(xr + hr)
            n = torch.tanh(xn + norm(self, theta, "hn", theta.hn(r * h)))
        z = torch.sigmoid(xz + hz)
        return ((1 - z) * n + z * h,)

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        initialize(weights)
