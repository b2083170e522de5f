"""Units inside units: a cell that does something around another's step, at every step."""

from __future__ import annotations

from dataclasses import field, replace

from torch import Tensor

from metarnn.cells import Cell, State, Theta, check


class Around(Cell):
    """A cell around a `unit`, whose drive depends on the state and is computed inside the step.

    The state is that of the unit, then the `own` of this cell; after them, for a unit whose output
    is more than its state (SRU's highway, QRNN's output gate), that output.
    """

    input_size: int = field(init=False)
    hidden_size: int = field(init=False)
    unit: Cell

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Cell):
            check.refuse("unit", self.unit, "a Cell, such as metarnn.cells.LSTM(8, 16)")
        object.__setattr__(self, "input_size", self.unit.input_size)
        object.__setattr__(self, "hidden_size", self.unit.hidden_size)

    @property
    def window(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.unit.window

    @property
    def own(self) -> tuple[int, ...]:
        """The widths of what this cell carries for itself."""
        return ()

    @property
    def states(self) -> tuple[int, ...]:
        output = (self.unit.output_size,) if self._carries_output else ()
        return (*self.unit.states, *self.own, *output)

    @property
    def held(self) -> int:
        return len(self.unit.states) + len(self.own)

    @property
    def output_size(self) -> int:
        return self.unit.output_size

    @property
    def _carries_output(self) -> bool:
        return type(self.unit).output is not Cell.output

    def run(self, theta: Theta, x: Tensor, state: State) -> tuple[State, State]:
        """The unit's new state and, where it is carried, its output."""
        unit = self.unit
        drive = unit.drive(theta, x)
        state = unit.step(theta, drive, state[: len(unit.states)])
        return state, ((unit.output(theta, drive, state),) if self._carries_output else ())

    def generated(self, theta: Theta, x: Tensor, state: State) -> dict[str, Tensor]:
        """What a step generates, by name, as deviations; for those who look inside."""
        raise NotImplementedError

    def output(self, theta: Theta, drive: Tensor, state: State) -> Tensor:
        return state[-1] if self._carries_output else state[0]

    def resized(self, input_size: int) -> Around:
        return replace(self, unit=self.unit.resized(input_size))
