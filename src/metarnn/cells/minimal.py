"""Gated units whose gates see no state (Feng et al. 2024): linear in the state, run by a scan."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from metarnn.cells.base import Drive, LinearCell, Map, Theta


class MinGRU(LinearCell):
    """z_t = σ(W_z x_t + b_z),  n_t = W_n x_t + b_n,  h_t = (1 - z_t) ⊙ h_{t-1} + z_t ⊙ n_t"""

    bias: bool = True

    @property
    def maps(self) -> dict[str, Map]:
        return {"ih": Map(self.input_size, (self.hidden_size,) * 2, self.bias)}

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        z, n = theta.ih(x).chunk(2, -1)
        return {"z": torch.sigmoid(z), "n": n}

    def affine(self, theta: Theta, drive: Drive) -> tuple[tuple[Tensor, Tensor], ...]:
        z, n = drive["z"], drive["n"]
        return ((1 - z, z * n),)


class MinLSTM(LinearCell):
    """f_t, i_t = σ(W x_t + b),  g_t = W_g x_t + b_g

    h_t = f_t / (f_t + i_t) ⊙ h_{t-1} + i_t / (f_t + i_t) ⊙ g_t
    """

    bias: bool = True

    @property
    def maps(self) -> dict[str, Map]:
        return {"ih": Map(self.input_size, (self.hidden_size,) * 3, self.bias)}

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        f, i, g = theta.ih(x).chunk(3, -1)
        # f / (f + i) = σ(log f - log i), and never 0/0 where both gates are shut.
        return {"f": torch.sigmoid(softplus(-i) - softplus(-f)), "g": g}

    def affine(self, theta: Theta, drive: Drive) -> tuple[tuple[Tensor, Tensor], ...]:
        f, g = drive["f"], drive["g"]
        return ((f, (1 - f) * g),)
