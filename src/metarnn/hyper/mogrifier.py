from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import Drive, Map, State, Theta, check
from metarnn.hyper.around import Around


class Mogrifier(Around):
    """x and h scale each other, round by round, before a unit reads them (Melis et al. 2020).

    x ← 2σ(Q_i h_{t-1}) ⊙ x          in rounds i = 1, 3, 5, …
    h ← 2σ(R_i x) ⊙ h_{t-1}          in rounds i = 2, 4, …

    These are column scales of the unit's maps, coupled to the state: r and c of `Scale` with
    another generator. The unit's recurrent maps read h; what else it does with h_{t-1} (a GRU's
    carry) it does with h_{t-1} itself. `rank` makes Q_i and R_i products of two thin matrices; 0
    leaves them whole. They start at 0, so the cell starts as its unit.

    >>> Mogrifier(cells.LSTM(8, 16), rounds=5, rank=4).maps["q1_up"]
    Map(inputs=4, rows=8, bias=False, recurrent=False)
    """

    rounds: int = 5
    rank: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check.size("rounds", self.rounds)
        check.size("rank", self.rank, least=0)

    @property
    def maps(self) -> dict[str, Map]:
        found = dict(self.unit.maps)
        x, h = self.unit.window * self.unit.input_size, self.unit.states[0]
        for i in range(1, self.rounds + 1):
            name, inputs, outputs = (f"q{i}", h, x) if i % 2 else (f"r{i}", x, h)
            if self.rank:
                found[f"{name}_down"] = Map(inputs, self.rank, bias=False)
                found[f"{name}_up"] = Map(self.rank, outputs, bias=False)
            else:
                found[f"{name}_up"] = Map(inputs, outputs, bias=False)
        return found

    @property
    def vectors(self) -> dict[str, int]:
        return self.unit.vectors

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        of_x, of_h = self._factors(theta, drive, state[0])
        state, output = self.run(self._scaled(theta, of_h), of_x * drive, state)
        return (*state, *output)

    def _factors(self, theta: Theta, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor | None]:
        """What x and h are multiplied with in all rounds together; None for h in a single one."""
        of_x: Any = None
        of_h: Any = None
        for i in range(1, self.rounds + 1):
            if i % 2:
                gate = self._gate(theta, f"q{i}", h if of_h is None else of_h * h)
                of_x = gate if of_x is None else gate * of_x
            else:
                gate = self._gate(theta, f"r{i}", of_x * x)
                of_h = gate if of_h is None else gate * of_h
        return of_x, of_h

    def generated(self, theta: Theta, x: Tensor, state: State) -> dict[str, Tensor]:
        of_x, of_h = self._factors(theta, x, state[0])
        return {"x": of_x - 1} | ({} if of_h is None else {"h": of_h - 1})

    def _gate(self, theta: Theta, name: str, x: Tensor) -> Tensor:
        if self.rank:
            x = getattr(theta, f"{name}_down")(x)
        return 2 * torch.sigmoid(getattr(theta, f"{name}_up")(x))

    def _scaled(self, theta: Theta, scale: Tensor | None) -> Theta:
        """The unit's weights, with the columns of the maps that read h scaled."""
        members: dict[str, Any] = {}
        for name, m in self.unit.maps.items():
            linear = getattr(theta, name)
            reads_h = m.recurrent and m.inputs == self.unit.states[0]
            members[name] = linear if scale is None or not reads_h else _columns(linear, scale)
        return Theta.holding(members | {n: getattr(theta, n) for n in self.unit.vectors})

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        self.unit.initialize(weights)
        for name, weight in weights.items():
            if name.startswith(("weight_q", "weight_r")) and name.endswith("_up"):
                weight.zero_()


def _columns(linear: Callable[[Tensor], Tensor], scale: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda h: linear(scale * h)
