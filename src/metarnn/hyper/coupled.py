from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import Cell, Drive, Map, State, Theta, check
from metarnn.hyper.around import Around
from metarnn.hyper.forms import Form, maps, modulated, numbers, vectors

HYPER = "hyper_"  # before the names of the smaller unit's weights


class Coupled(Around):
    """A unit whose weights a smaller one writes, at every step, from the input and the state.

    ĥ_t = hyper([x_t; h_{t-1}], ĥ_{t-1})
    d_t = M ĥ_t,  or with an `embedding`  d_t = M (E ĥ_t + e), for each gate apart
    h_t = unit(x_t, h_{t-1}) with weights that the `forms` make of d_t

    >>> Coupled(cells.GRU(8, 16), (metarnn.hyper.Scale(),), cells.LSTM(24, 4)).states
    (16, 4, 4)

    M starts at 0: the cell starts as its unit.
    """

    forms: tuple[Form, ...]
    hyper: Cell
    embedding: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers(self.unit, self.forms)
        check.size("embedding", self.embedding, least=0)
        reads = self.unit.window * self.unit.input_size + self.unit.states[0]
        if self.hyper.input_size != reads:
            why = f"{reads}, what [x; h] has"
            check.refuse("hyper.input_size", self.hyper.input_size, why)
        if self.hyper.window != 1:
            check.refuse("hyper.window", self.hyper.window, "1: it reads one input a step")

    @property
    def own(self) -> tuple[int, ...]:
        return self.hyper.states

    @property
    def maps(self) -> dict[str, Map]:
        found = maps(self.unit, self.forms)
        found |= {HYPER + name: m for name, m in self.hyper.maps.items()}
        width, k = self.hyper.output_size, self.embedding
        for name, number in numbers(self.unit, self.forms).items():
            if not k:
                found[f"make_{name}"] = Map(width, number.gates, bias=False)
                continue
            gates = len(number.gates)
            # A shift is made of deviations alone, a scale of an embedding that has a mean.
            found[f"embed_{name}"] = Map(width, (k,) * gates, bias=not name.startswith("shift_"))
            for gate, rows in enumerate(number.gates):
                found[f"make_{name}_{gate}"] = Map(k, rows, bias=False)
        return found

    @property
    def vectors(self) -> dict[str, int]:
        hyper = {HYPER + name: width for name, width in self.hyper.vectors.items()}
        return vectors(self.unit) | hyper

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        small, made = self._write(theta, drive, state)
        new, output = self.run(modulated(self.unit, self.forms, theta, made), drive, state)
        return (*new, *small, *output)

    def generated(self, theta: Theta, x: Tensor, state: State) -> dict[str, Tensor]:
        return self._write(theta, x, state)[1]

    def _write(self, theta: Theta, x: Tensor, state: State) -> tuple[State, dict[str, Tensor]]:
        """The smaller unit's new state, and the numbers that it writes."""
        hyper = self.hyper
        inner = Theta.holding(
            {name: getattr(theta, HYPER + name) for name in (*hyper.maps, *hyper.vectors)}
        )
        seen = hyper.drive(inner, torch.cat([x, state[0]], -1))
        first = len(self.unit.states)
        small = hyper.step(inner, seen, state[first : first + len(hyper.states)])
        return small, self._heads(theta, hyper.output(inner, seen, small))

    def _heads(self, theta: Theta, context: Tensor) -> dict[str, Tensor]:
        found = {}
        for name, number in numbers(self.unit, self.forms).items():
            if not self.embedding:
                found[name] = getattr(theta, f"make_{name}")(context)
                continue
            embedded = getattr(theta, f"embed_{name}")(context).chunk(len(number.gates), -1)
            parts = [getattr(theta, f"make_{name}_{k}")(z) for k, z in enumerate(embedded)]
            found[name] = torch.cat(parts, -1)
        return found

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        self.unit.initialize(weights)
        self.hyper.initialize(hypers(weights))
        for name, weight in weights.items():
            if name.startswith("weight_make_"):
                weight.zero_()

    def resized(self, input_size: int) -> Coupled:
        unit = self.unit.resized(input_size)
        hyper = self.hyper.resized(unit.window * input_size + unit.states[0])
        return replace(self, unit=unit, hyper=hyper)


def hypers(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """The weights of the smaller unit, under its own names."""
    found = {}
    for name, weight in weights.items():
        kind, _, rest = name.partition("_")
        if name.startswith(HYPER):
            found[name.removeprefix(HYPER)] = weight
        elif rest.startswith(HYPER):
            found[f"{kind}_{rest.removeprefix(HYPER)}"] = weight
    return found
