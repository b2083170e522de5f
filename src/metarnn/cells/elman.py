from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from metarnn.cells.base import Cell, Drive, Map, State, Theta, pointwise


class Elman(Cell):
    """The simple recurrent unit (Elman 1990).

    h_t = φ(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)
    """

    nonlinearity: str | Callable[[Tensor], Tensor] = "tanh"
    bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        pointwise("nonlinearity", self.nonlinearity)

    @property
    def maps(self) -> dict[str, Map]:
        return {
            "ih": Map(self.input_size, self.hidden_size, self.bias),
            "hh": Map(self.hidden_size, self.hidden_size, self.bias, recurrent=True),
        }

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        return theta.ih(x)

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        (h,) = state
        φ = pointwise("nonlinearity", self.nonlinearity)
        return (φ(drive + theta.hh(h)),)
