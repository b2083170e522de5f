"""HyperLSTM (Ha, Dai, Le 2016): a small LSTM that writes row scales and biases of a larger one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from metarnn.cells import Cell, Drive, Map, State, Theta, check
from metarnn.hyper.coupled import Coupled
from metarnn.hyper.forms import Scale


class GateLSTM(Cell):
    """The LSTM of that paper: one bias, and layer norm of each gate's whole sum.

    a_y = LN_y(W_y x_t + U_y h_{t-1} + b_y)          for the gates y = i, f, g, o
    c_t = σ(a_f) ⊙ c_{t-1} + σ(a_i) ⊙ tanh(a_g),  h_t = σ(a_o) ⊙ tanh(LN(c_t))

    The forget gate's bias (with layer norm its shift) starts at 1.
    """

    layer_norm: bool = False

    @property
    def states(self) -> tuple[int, ...]:
        return (self.hidden_size, self.hidden_size)

    @property
    def maps(self) -> dict[str, Map]:
        rows = (self.hidden_size,) * 4
        return {
            "ih": Map(self.input_size, rows),
            "hh": Map(self.hidden_size, rows, bias=False, recurrent=True),
        }

    @property
    def vectors(self) -> dict[str, int]:
        normed = [*"ifgoc"] if self.layer_norm else []
        return {f"{kind}_{y}": self.hidden_size for kind in ("gain", "shift") for y in normed}

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        return theta.ih(x)

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        h, c = state
        gates = (drive + theta.hh(h)).chunk(4, -1)
        i, f, g, o = (self._norm(theta, y, a) for y, a in zip("ifgo", gates, strict=True))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(self._norm(theta, "c", c)), c

    def _norm(self, theta: Theta, y: str, x: Tensor) -> Tensor:
        if not self.layer_norm:
            return x
        gain, shift = getattr(theta, f"gain_{y}"), getattr(theta, f"shift_{y}")
        return F.layer_norm(x, x.shape[-1:], gain, shift)

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        H = self.hidden_size
        if self.layer_norm:
            for y in "ifgoc":
                weights[f"gain_{y}"].fill_(1)
            weights["shift_f"].fill_(1)
        else:
            weights["bias_ih"][H : 2 * H] = 1


class HyperLSTM(Coupled):
    """A row scale for each of W x and U h and a bias, generated anew at each step.

    ĥ_t = LSTM([x_t; h_{t-1}], ĥ_{t-1})
    z = E ĥ_t + e,  r_x = M_x z_x,  r_h = M_h z_h,  Δb = M_b z_b      for each gate
    a_y = LN_y(r_x ⊙ W_y x_t + r_h ⊙ U_y h_{t-1} + b_y + Δb)          and on as in `GateLSTM`

    ĥ is `hyper_size` wide, each z of each gate `embedding`; LN only with `layer_norm`. Weights
    start as the paper has it, all scales at 0.1.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        hyper_size: int = 128,
        embedding: int = 4,
        layer_norm: bool = False,
    ) -> None:
        check.size("hyper_size", hyper_size)
        unit = GateLSTM(input_size, hidden_size, layer_norm)
        hyper = GateLSTM(input_size + hidden_size, hyper_size, layer_norm)
        fields = {
            "unit": unit,
            "forms": (
                Scale(("input", "recurrent", "bias"), rows=True, columns=False, by="linear"),
            ),
            "hyper": hyper,
            "embedding": check.size("embedding", embedding),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        super().initialize(weights)
        for name, weight in weights.items():
            if name.startswith("weight_embed_rows"):
                weight.zero_()
            elif name.startswith("bias_embed_rows"):
                weight.fill_(1)
            elif name.startswith("weight_embed_shift"):
                weight.normal_(0, 0.01)
            elif name.startswith("weight_make_rows"):
                weight.fill_(0.1 / self.embedding)

    def resized(self, input_size: int) -> HyperLSTM:
        unit, hyper = self.unit, self.hyper
        assert isinstance(unit, GateLSTM)
        sizes = (unit.hidden_size, hyper.hidden_size, self.embedding)
        return HyperLSTM(input_size, *sizes, unit.layer_norm)
