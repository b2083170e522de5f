from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from metarnn.cells.base import Cell, Drive, Map, State, Theta


class Feedback(Cell):
    """A cell that reads its own last output beside its input: x'_t = [x_t; y_{t-1}].

    The state is that of the `unit` and, after it, y_{t-1}; for a unit whose window is wider than
    one also the inputs x' it still needs. The unit's drive depends on y, so nothing is hoisted;
    with the true outputs given, a layer runs the unit itself on [x; y] instead.
    """

    unit: Cell

    @classmethod
    def around(cls, cell: Cell) -> Feedback:
        unit = cell.resized(cell.input_size + cell.output_size)
        return cls(cell.input_size, cell.hidden_size, unit)

    @property
    def maps(self) -> dict[str, Map]:
        return self.unit.maps

    @property
    def vectors(self) -> dict[str, int]:
        return self.unit.vectors

    @property
    def states(self) -> tuple[int, ...]:
        past = (self.unit.window - 1) * self.unit.input_size
        return (*self.unit.states, self.unit.output_size, *((past,) if past else ()))

    @property
    def output_size(self) -> int:
        return self.unit.output_size

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        unit = self.unit
        inner, (y, *past) = state[: len(unit.states)], state[len(unit.states) :]
        seen = torch.cat([*past, drive, y], -1)
        inputs = unit.drive(theta, seen)
        inner = unit.step(theta, inputs, inner)
        y = unit.output(theta, inputs, inner)
        return (*inner, y, *((seen[..., unit.input_size :],) if past else ()))

    def output(self, theta: Theta, drive: Drive, state: State) -> Tensor:
        return state[len(self.unit.states)]

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        self.unit.initialize(weights)

    def resized(self, input_size: int) -> Feedback:
        unit = self.unit.resized(input_size + self.unit.output_size)
        return type(self)(input_size, self.hidden_size, unit)
