from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from torch import Tensor

from metarnn.cells import Cell, Drive, LinearCell, Map, State, Theta, check
from metarnn.hyper.forms import Form, maps, modulated, numbers, vectors


class Generated(LinearCell):
    """A unit whose weights are made of numbers that it is given at every step, or for a sequence.

    h_t = unit(x_t, h_{t-1}) with weights that the `forms` make of d_t. The numbers need no state,
    so what they do to the input maps is done for all steps at once; a unit that is linear in its
    state stays so. Weights have the unit's own names, and with all numbers 0 the unit is plain.
    """

    input_size: int = field(init=False)
    hidden_size: int = field(init=False)
    unit: Cell
    forms: tuple[Form, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Cell):
            check.refuse("unit", self.unit, "a Cell, such as metarnn.cells.LSTM(8, 16)")
        object.__setattr__(self, "input_size", self.unit.input_size)
        object.__setattr__(self, "hidden_size", self.unit.hidden_size)
        numbers(self.unit, self.forms)

    @property
    def window(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.unit.window

    @property
    def state_is_output(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.unit.state_is_output

    @property
    def linear(self) -> bool:
        return self.unit.linear

    @property
    def extra_inputs(self) -> dict[str, int]:
        return {name: number.width for name, number in numbers(self.unit, self.forms).items()}

    @property
    def maps(self) -> dict[str, Map]:
        return maps(self.unit, self.forms)

    @property
    def vectors(self) -> dict[str, int]:
        return vectors(self.unit)

    @property
    def states(self) -> tuple[int, ...]:
        return self.unit.states

    @property
    def held(self) -> int:
        return self.unit.held

    @property
    def output_size(self) -> int:
        return self.unit.output_size

    def drive(self, theta: Theta, x: Any) -> Drive:
        given = {name: x[name] for name in self.extra_inputs}
        drive = self.unit.drive(self._theta(theta, given), x["x"])
        plain = drive if isinstance(drive, dict) else {"": drive}
        return {f"unit.{name}": value for name, value in plain.items()} | given

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        return self.unit.step(self._theta(theta, drive), _inner(drive), state)

    def affine(self, theta: Theta, drive: Drive) -> tuple[tuple[Tensor, Tensor], ...]:
        assert isinstance(self.unit, LinearCell)
        return self.unit.affine(self._theta(theta, drive), _inner(drive))

    def output(self, theta: Theta, drive: Drive, state: State) -> Tensor:
        return self.unit.output(self._theta(theta, drive), _inner(drive), state)

    def _theta(self, theta: Theta, given: Mapping[str, Tensor]) -> Theta:
        return modulated(self.unit, self.forms, theta, given)

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        self.unit.initialize(weights)

    def resized(self, input_size: int) -> Generated:
        return replace(self, unit=self.unit.resized(input_size))


def _inner(drive: Mapping[str, Tensor]) -> Drive:
    """The unit's own drive."""
    if "unit." in drive:
        return drive["unit."]
    return {n.removeprefix("unit."): v for n, v in drive.items() if n.startswith("unit.")}
