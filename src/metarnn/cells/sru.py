from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.cells.base import Drive, LinearCell, Map, State, Theta


class SRU(LinearCell):
    """The simple recurrent unit (Lei et al. 2018).

    x̃_t = W x_t
    f_t = σ(W_f x_t + b_f  [+ v_f ⊙ c_{t-1}])
    r_t = σ(W_r x_t + b_r  [+ v_r ⊙ c_{t-1}])
    c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ x̃_t
    h_t = r_t ⊙ g(c_t) + (1 - r_t) ⊙ α x'_t

    The terms in brackets belong to `version=2`; without them (`version=1`) the step is linear in
    the state. `activation` is g, identity or tanh. x' is x, or W_x x where the sizes differ;
    `highway=False` leaves the last term out. `rescale` sets α = √(1 + 2 exp(highway_bias)), which
    keeps the variance through deep stacks, else α = 1; b_r starts at `highway_bias`.

    State: c in version 1; (h, c) in version 2, whose r needs the c before.
    """

    version: int = 1
    highway: bool = True
    activation: str = "identity"
    rescale: bool = True
    highway_bias: float = 0.0
    bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.version not in (1, 2):
            check.refuse("version", self.version, "1 or 2")
        check.one_of("activation", self.activation, ["identity", "tanh"])
        check.number("highway_bias", self.highway_bias)

    @property
    def linear(self) -> bool:
        return self.version == 1

    @property
    def states(self) -> tuple[int, ...]:
        return (self.hidden_size,) if self.version == 1 else (self.hidden_size,) * 2

    @property
    def maps(self) -> dict[str, Map]:
        I, H = self.input_size, self.hidden_size
        maps = {"ih": Map(I, H, bias=False), "gates": Map(I, (H, H), self.bias)}
        if self.highway and I != H:
            maps["highway"] = Map(I, H, bias=False)
        return maps

    @property
    def vectors(self) -> dict[str, int]:
        return {} if self.version == 1 else {"v_f": self.hidden_size, "v_r": self.hidden_size}

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        f, r = theta.gates(x).chunk(2, -1)
        if self.version == 1:
            f, r = torch.sigmoid(f), torch.sigmoid(r)
        drive = {"x": theta.ih(x), "f": f, "r": r}
        if self.highway:
            α = math.sqrt(1 + 2 * math.exp(self.highway_bias)) if self.rescale else 1.0
            drive["highway"] = α * (x if self.input_size == self.hidden_size else theta.highway(x))
        return drive

    def affine(self, theta: Theta, drive: Drive) -> tuple[tuple[Tensor, Tensor], ...]:
        f = drive["f"]
        return ((f, (1 - f) * drive["x"]),)

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        if self.version == 1:
            return super().step(theta, drive, state)
        _, c = state
        f = torch.sigmoid(drive["f"] + theta.v_f * c)
        r = torch.sigmoid(drive["r"] + theta.v_r * c)
        c = f * c + (1 - f) * drive["x"]
        return self.read(drive, r, c), c

    def output(self, theta: Theta, drive: Drive, state: State) -> Tensor:
        return self.read(drive, drive["r"], state[0]) if self.version == 1 else state[0]

    def read(self, drive: Drive, r: Tensor, c: Tensor) -> Tensor:
        h = r * (torch.tanh(c) if self.activation == "tanh" else c)
        return h + (1 - r) * drive["highway"] if self.highway else h

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        if self.bias:
            weights["bias_gates"][self.hidden_size :] = self.highway_bias
