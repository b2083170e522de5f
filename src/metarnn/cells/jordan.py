from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from metarnn.cells import check
from metarnn.cells.base import Cell, Drive, Map, State, Theta, pointwise


class Jordan(Cell):
    """Recurrence from the output to the hidden units only (Jordan 1986).

    h_t = φ(W_ih x_t + b_ih + W_yh y_{t-1})
    y_t = ψ(W_hy h_t + b_hy)

    The state is the output y, of width `outputs`. With the true outputs given (teacher forcing)
    no step waits for another one, and a layer runs all of them at once.
    """

    outputs: int
    nonlinearity: str | Callable[[Tensor], Tensor] = "tanh"
    output_nonlinearity: str | Callable[[Tensor], Tensor] = "identity"
    bias: bool = True

    state_is_output = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check.size("outputs", self.outputs)
        pointwise("nonlinearity", self.nonlinearity)
        pointwise("output_nonlinearity", self.output_nonlinearity)

    @property
    def maps(self) -> dict[str, Map]:
        return {
            "ih": Map(self.input_size, self.hidden_size, self.bias),
            "yh": Map(self.outputs, self.hidden_size, bias=False, recurrent=True),
            "hy": Map(self.hidden_size, self.outputs, self.bias),
        }

    @property
    def states(self) -> tuple[int, ...]:
        return (self.outputs,)

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        return theta.ih(x)

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        (y,) = state
        φ = pointwise("nonlinearity", self.nonlinearity)
        ψ = pointwise("output_nonlinearity", self.output_nonlinearity)
        h = φ(drive + theta.yh(y))
        return (ψ(theta.hy(h)),)
