"""What a cell is: one time step, described apart from its weights and from how it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias, dataclass_transform

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function_unary

from metarnn.cells import check

State: TypeAlias = tuple[Tensor, ...]
Drive: TypeAlias = Any  # a tensor or a dict of tensors, whatever Cell.drive returns


@dataclass(frozen=True)
class Map:
    """A linear map that a cell declares: y = W x + b, W of shape [outputs, inputs].

    `rows` is the number of outputs, or a tuple with the width of each gate: gates are
    initialised apart. `recurrent` says that the map reads the state.
    """

    inputs: int
    rows: int | tuple[int, ...]
    bias: bool = True
    recurrent: bool = False

    @property
    def gates(self) -> tuple[int, ...]:
        return self.rows if isinstance(self.rows, tuple) else (self.rows,)

    @property
    def outputs(self) -> int:
        return sum(self.gates)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class _Described:
    """Makes a frozen dataclass of every subclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(frozen=True)(cls)


class Cell(_Described):
    """One time step, state_t = f_theta(x_t, state_{t-1}): a description that holds no parameters.

    A subclass is made a frozen dataclass; its fields are its options. It declares its weights
    (`maps`, `vectors`) and is handed them as `theta`: `theta.hh(h)` applies the map `hh`,
    `theta.peep_i` is the vector `peep_i`. All methods work on the last dimension and take any
    leading ones, are pure, and use no tensors but those they are given.
    """

    input_size: int
    hidden_size: int

    # Not annotated, so no fields: how many inputs a step sees, its own included (the layer stacks
    # and carries them); whether the state is the last output alone, which true outputs, where
    # given, replace.
    window = 1
    state_is_output = False

    def __post_init__(self) -> None:
        check.size("input_size", self.input_size, least=0)
        check.size("hidden_size", self.hidden_size)

    @property
    def maps(self) -> dict[str, Map]:
        """The linear maps, by name. A map called `ih` owns `weight_ih` and `bias_ih`."""
        return {}

    @property
    def vectors(self) -> dict[str, int]:
        """Elementwise weights (peepholes, gains), by name, with their widths. They start at 0."""
        return {}

    @property
    def states(self) -> tuple[int, ...]:
        """The widths of the parts of the state."""
        return (self.hidden_size,)

    @property
    def held(self) -> int:
        """How many parts of the state, from the first on, zoneout may hold."""
        return len(self.states)

    @property
    def output_size(self) -> int:
        return self.states[0]

    @property
    def linear(self) -> bool:
        """Whether each state part is a_t ⊙ state_{t-1} + b_t, a and b free of the state."""
        return False

    @property
    def extra_inputs(self) -> dict[str, int]:
        """The rows that a step reads beside x, such as generated weights: {name: width}.

        `drive` is then handed a dict, with x under "x" and these under their own names.
        """
        return {}

    def drive(self, theta: Theta, x: Any) -> Drive:
        """The part of a step that no state enters, for all time steps at once."""
        return x

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        raise NotImplementedError(f"{type(self).__name__} defines no step(theta, drive, state)")

    def output(self, theta: Theta, drive: Drive, state: State) -> Tensor:
        """What the layer puts out, from the states of all steps, after the loop."""
        return state[0]

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        """Set starting values in place where the default (see `layers.initialize`) is not right."""

    def resized(self, input_size: int) -> Cell:
        """The same cell for inputs of another width, as the upper layers of a stack have it."""
        return replace(self, input_size=input_size)


class LinearCell(Cell):
    """A cell whose state parts are each s_t = a_t ⊙ s_{t-1} + b_t, so that a scan can run it."""

    @property
    def linear(self) -> bool:
        return True

    def affine(self, theta: Theta, drive: Drive) -> tuple[tuple[Tensor, Tensor], ...]:
        """The pair (a, b) of each state part."""
        raise NotImplementedError(f"{type(self).__name__} defines no affine(theta, drive)")

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        return tuple(a * s + b for (a, b), s in zip(self.affine(theta, drive), state, strict=True))


class Theta:
    """The weights of one cell, as the cell sees them.

    >>> cell = Elman(3, 2)
    >>> theta = Theta(cell, {name: torch.ones(shape) for name, shape in shapes(cell).items()})
    >>> theta.hh(torch.ones(2))
    tensor([3., 3.])

    `columns` scales the inputs of a map, y = W (c ⊙ x) + b: recurrent dropout is such a scale.
    """

    def __init__(
        self,
        cell: Cell,
        weights: Mapping[str, Tensor],
        columns: Mapping[str, Tensor] | None = None,
    ) -> None:
        missing = [name for name in shapes(cell) if name not in weights]
        if missing:
            check.refuse("weights", sorted(weights), f"also {missing}, which {cell} declares")
        columns = columns or {}
        for name, m in cell.maps.items():
            bias = weights[f"bias_{name}"] if m.bias else None  # else it may name a vector
            linear = partial(F.linear, weight=weights[f"weight_{name}"], bias=bias)
            setattr(self, name, _scaled(linear, columns[name]) if name in columns else linear)
        for name in cell.vectors:
            setattr(self, name, weights[name])

    @classmethod
    def holding(cls, members: Mapping[str, Any]) -> Theta:
        """One whose maps and vectors are ready: what a cell made of other cells hands to them."""
        theta = cls.__new__(cls)
        vars(theta).update(members)
        return theta

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"theta.{name}: the cell declares no such map or vector, only {sorted(vars(self))}"
        )


def _scaled(linear: Callable[[Tensor], Tensor], columns: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: linear(columns * x)


def shapes(cell: Cell) -> dict[str, tuple[int, ...]]:
    """Name and shape of each weight of a cell, in the order in which a layer registers them.

    That is torch.nn's order (weight_ih, weight_hh, bias_ih, bias_hh, weight_hr), since the state
    of an optimiser is positional.
    """
    maps, found = cell.maps, {}
    for name, m in maps.items():
        if m.bias:
            found[f"weight_{name}"] = (m.outputs, m.inputs)
    for name, m in maps.items():
        if m.bias:
            found[f"bias_{name}"] = (m.outputs,)
    for name, m in maps.items():
        if not m.bias:
            found[f"weight_{name}"] = (m.outputs, m.inputs)
    for name, width in cell.vectors.items():
        if name in found or name in maps:
            check.refuse("vectors", name, f"a name of its own in {type(cell).__name__}")
        found[name] = (width,)
    return found


def fold(x: Tensor, times: int) -> Tensor:
    """Sums of `times` neighbours: [..., n · times] -> [..., n]."""
    if has_torch_function_unary(x):
        return handle_torch_function(fold, (x,), x, times)
    return x.unflatten(-1, (-1, times)).sum(-1)


POINTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "silu": F.silu,
    "elu": F.elu,
}


def pointwise(argument: str, function: str | Callable[[Tensor], Tensor]):
    """A pointwise function by its name, or the one given."""
    if callable(function):
        return function
    return POINTWISE[check.one_of(argument, function, POINTWISE)]
