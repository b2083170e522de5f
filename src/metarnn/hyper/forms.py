"""How generated numbers become a unit's weights: scales, low rank, mixtures, every number.

A form is told which weights of a unit it is `on`; says which numbers have to be generated for them
and which further maps the cell has to declare; and changes a map as the unit sees it. Numbers are
deviations: where all of them are 0, the unit is the plain one. Forms chain, so that scales and low
rank together are y = r ⊙ W (c ⊙ x) + U (s ⊙ V x) + b + Δb.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import Cell, Map, Theta, check
from metarnn.cells.base import fold
from metarnn.cells.mixed import CHOICE

Numbers = Mapping[str, Tensor]
Apply = Callable[[Tensor], Tensor]  # a linear map without its bias

GROUPS = ("main", "input", "recurrent", "bias", "vectors", "choices")


@dataclass(frozen=True)
class Number:
    """A row of numbers to generate: the width of each gate's part.

    `std` is what hyperfan initialisation gives them, so that what they are made into keeps the
    scale of its inputs (Chang et al. 2020).
    """

    gates: tuple[int, ...]
    std: float

    @property
    def width(self) -> int:
        return sum(self.gates)


@dataclass(frozen=True)
class Form:
    """A form, and the weights of a unit that it is on.

    on  names of maps (`ih`), of biases (`bias_ih`), of vectors (`peep_i`), or of groups: `input`
        and `recurrent` (maps), `main` (recurrent ones, or where a unit has none its input maps),
        `bias` (those of the maps that read no state), `vectors`, `choices` (those vectors of a
        unit that mixes candidate operations which decide on them)
    """

    on: tuple[str, ...] = ("main",)

    def maps_of(self, unit: Cell) -> dict[str, Map]:
        """The maps of a unit that the form is on."""
        groups = {"input": False, "recurrent": True}
        asked = {groups[name] for name in self.on if name in groups}
        if "main" in self.on:
            asked.add(any(m.recurrent for m in unit.maps.values()))
        return {n: m for n, m in unit.maps.items() if n in self.on or m.recurrent in asked}

    def vectors_of(self, unit: Cell) -> dict[str, int]:
        """The same for biases and vectors, with their widths."""
        biases = {f"bias_{n}": m for n, m in unit.maps.items() if m.bias}
        found = {
            name: m.outputs
            for name, m in biases.items()
            if name in self.on or ("bias" in self.on and not m.recurrent)
        }
        return found | {
            name: width
            for name, width in unit.vectors.items()
            if name in self.on
            or "vectors" in self.on
            or ("choices" in self.on and name.startswith(CHOICE))
        }

    def check(self, unit: Cell) -> None:
        biases = [f"bias_{name}" for name, m in unit.maps.items() if m.bias]
        own = [*unit.maps, *biases, *unit.vectors]
        for name in self.on:
            check.one_of("on", name, [*GROUPS, *own])
        if not self.numbers(unit):
            check.refuse("on", self.on, f"weights that {type(unit).__name__} has: {own}")

    def numbers(self, unit: Cell) -> dict[str, Number]:
        """What has to be generated, by name."""
        found: dict[str, Number] = {}
        for name, m in self.maps_of(unit).items():
            found |= {f"{kind}_{name}": number for kind, number in self.of_map(m).items()}
        for name, width in self.vectors_of(unit).items():
            parts = unit.maps[name[5:]].gates if name[5:] in unit.maps else (width,)
            found[f"shift_{name}"] = Number(parts, math.sqrt(0.5))
        return found

    def of_map(self, m: Map) -> dict[str, Number]:
        raise NotImplementedError

    def maps(self, unit: Cell) -> dict[str, Map]:
        """Maps that the cell declares beside the unit's own."""
        return {}

    def apply(self, name: str, m: Map, theta: Theta, numbers: Numbers, linear: Apply) -> Apply:
        """A map of the unit as changed by the generated numbers."""
        raise NotImplementedError


@dataclass(frozen=True)
class Scale(Form):
    """y = r ⊙ W (c ⊙ x) + b + Δb, with r for the `rows` and c for the `columns` of a map.

    A factor is, of a generated number d, `by` "bounded" 2σ(d) as in the Mogrifier, by "deviation"
    1 + d, by "linear" d itself as in HyperLSTM.

    By default columns of the recurrent maps are written, W (c ⊙ h): a quarter of the numbers that
    the rows of an LSTM have. They are bounded, since at a learning rate of 6e-3 the d of 1 + d
    went up to 5 within 200 updates, and the unit learned less than a plain one (docs/results.md).
    """

    on: tuple[str, ...] = ("main",)
    rows: bool = False
    columns: bool = True
    by: str = "bounded"

    def __post_init__(self) -> None:
        check.one_of("by", self.by, ["bounded", "deviation", "linear"])
        if not (self.rows or self.columns):
            check.refuse("rows and columns", False, "one of them at least")

    def factor(self, d: Tensor) -> Tensor:
        if self.by == "bounded":
            return 2 * torch.sigmoid(d)
        return 1 + d if self.by == "deviation" else d

    def of_map(self, m: Map) -> dict[str, Number]:
        found = {"rows": Number(m.gates, 0.1)} if self.rows else {}
        return found | ({"columns": Number((m.inputs,), 0.1)} if self.columns else {})

    def apply(self, name: str, m: Map, theta: Theta, numbers: Numbers, linear: Apply) -> Apply:
        def scaled(x: Tensor) -> Tensor:
            if self.columns:
                x = self.factor(numbers[f"columns_{name}"]) * x
            y = linear(x)
            return self.factor(numbers[f"rows_{name}"]) * y if self.rows else y

        return scaled


@dataclass(frozen=True)
class LowRank(Form):
    """y = W x + U (s ⊙ V x) + b + Δb with `rank` generated numbers s a map."""

    rank: int = 8

    def of_map(self, m: Map) -> dict[str, Number]:
        return {"rank": Number((check.size("rank", self.rank),), math.sqrt(0.5))}

    def maps(self, unit: Cell) -> dict[str, Map]:
        found: dict[str, Map] = {}
        for name, m in self.maps_of(unit).items():
            found[f"v_{name}"] = Map(m.inputs, self.rank, bias=False)
            found[f"u_{name}"] = Map(self.rank, m.rows, bias=False)
        return found

    def apply(self, name: str, m: Map, theta: Theta, numbers: Numbers, linear: Apply) -> Apply:
        u, v = getattr(theta, f"u_{name}"), getattr(theta, f"v_{name}")
        return lambda x: linear(x) + u(numbers[f"rank_{name}"] * v(x))


@dataclass(frozen=True)
class Mixture(Form):
    """y = (W + Σ_k a_k W_k) x + b + Δb with a bank of `bank` matrices a map, generated a_k."""

    bank: int = 4

    def of_map(self, m: Map) -> dict[str, Number]:
        return {"mix": Number((check.size("bank", self.bank),), math.sqrt(0.5 / self.bank))}

    def maps(self, unit: Cell) -> dict[str, Map]:
        return {
            f"bank_{name}": Map(m.inputs, m.gates * self.bank, bias=False)
            for name, m in self.maps_of(unit).items()
        }

    def apply(self, name: str, m: Map, theta: Theta, numbers: Numbers, linear: Apply) -> Apply:
        bank = getattr(theta, f"bank_{name}")

        def mixed(x: Tensor) -> Tensor:
            y, coefficients = linear(x), numbers[f"mix_{name}"]
            for k, part in enumerate(bank(x).chunk(self.bank, -1)):
                y = y + coefficients[..., k : k + 1] * part
            return y

        return mixed


# Numbers that `Full` may generate at each step for one sequence: 2^20 are 4 MB, and a training
# step holds B·T times that three times over.
MOST = 1 << 20


@dataclass(frozen=True)
class Full(Form):
    """y = (W + ΔW) x + b + Δb with every number of ΔW generated.

    That is outputs × inputs numbers for each sequence and step, so it is for small units; more
    than `most` a step are refused.
    """

    most: int = MOST

    def check(self, unit: Cell) -> None:
        super().check(unit)
        count = sum(number.width for number in self.numbers(unit).values())
        if count > self.most:
            memory = 4 * count * 32 * 100 / 1e9
            check.refuse(
                "form",
                "full",
                f"at most {self.most:,} numbers a step, not {count:,}: for 32 sequences of 100 "
                f"steps in float32 they take {memory:,.1f} GB, in training three times that",
                "Use 'scale' or 'lowrank', or name fewer maps with `on`.",
            )

    def of_map(self, m: Map) -> dict[str, Number]:
        gates = tuple(rows * m.inputs for rows in m.gates)
        return {"full": Number(gates, math.sqrt(0.5 / max(m.inputs, 1)))}

    def apply(self, name: str, m: Map, theta: Theta, numbers: Numbers, linear: Apply) -> Apply:
        def whole(x: Tensor) -> Tensor:
            every = torch.cat([x] * m.outputs, -1)
            return linear(x) + fold(numbers[f"full_{name}"] * every, m.inputs)

        return whole


@dataclass(frozen=True)
class Structure(Form):
    """The logits of a unit's choices, α + what is generated: the form of the unit itself.

    For units that mix candidate operations, such as `cells.Mixed`: which of them act, and how
    much, then differs from sequence to sequence, or from step to step.
    """

    on: tuple[str, ...] = ("choices",)

    def check(self, unit: Cell) -> None:
        if not any(name.startswith(CHOICE) for name in unit.vectors):
            kind = type(unit).__name__
            advice = "Use metarnn.cells.Mixed, or declare vectors choice_… and cells.mixed.mix."
            check.refuse("form", "structure", f"a unit with choices: {kind} has none", advice)
        super().check(unit)


FORMS: dict[str, Callable[[], Form]] = {
    "scale": Scale,
    # Where the context has seen x_t, a bias that is written can do what row scales of W x can, for
    # a third of the numbers less.
    "rows": lambda: Scale(("main", "bias"), rows=True, columns=False, by="deviation"),
    "columns": lambda: Scale(("input", "recurrent"), by="deviation"),
    "both": lambda: Scale(("input", "recurrent", "bias"), rows=True, by="deviation"),
    "bounded": lambda: Scale(("input", "recurrent", "bias"), rows=True),
    "lowrank": LowRank,
    "mixture": Mixture,
    "full": Full,
    "structure": Structure,
}


def forms(form: str | Form | Sequence[str | Form], on: Sequence[str] = ()) -> tuple[Form, ...]:
    """Forms by name or as they are, one or several that chain; `on` as in `Form`."""
    if isinstance(form, str | Form):
        form = (form,)
    found = []
    for one in form:
        made = one if isinstance(one, Form) else FORMS[check.one_of("form", one, FORMS)]()
        found.append(replace(made, on=tuple(on)) if on else made)
    if not found:
        check.refuse("form", form, "one at least")
    return tuple(found)


def numbers(unit: Cell, forms: Sequence[Form]) -> dict[str, Number]:
    """What has to be generated for a unit, by name."""
    found: dict[str, Number] = {}
    for form in forms:
        form.check(unit)
        found |= form.numbers(unit)
    return found


def maps(unit: Cell, forms: Sequence[Form]) -> dict[str, Map]:
    """The maps of a unit with generated weights: its own without biases, and those of forms.

    Biases become vectors of the same names, so that factors on W x leave them alone.
    """
    found = {name: replace(m, bias=False) for name, m in unit.maps.items()}
    for form in forms:
        found |= form.maps(unit)
    return found


def vectors(unit: Cell) -> dict[str, int]:
    biases = {f"bias_{name}": m.outputs for name, m in unit.maps.items() if m.bias}
    return biases | unit.vectors


def modulated(unit: Cell, forms: Sequence[Form], theta: Theta, numbers: Numbers) -> Theta:
    """The unit's weights as generated numbers change them."""

    def shifted(name: str) -> Tensor:
        value = getattr(theta, name)
        return value + numbers[f"shift_{name}"] if f"shift_{name}" in numbers else value

    members: dict[str, Any] = {name: shifted(name) for name in unit.vectors}
    for name, m in unit.maps.items():
        apply = getattr(theta, name)
        for form in forms:
            if name in form.maps_of(unit):
                apply = form.apply(name, m, theta, numbers, apply)
        members[name] = _with_bias(apply, shifted(f"bias_{name}")) if m.bias else apply
    return Theta.holding(members)


def _with_bias(apply: Apply, bias: Tensor) -> Apply:
    return lambda x: apply(x) + bias
