"""Recurrent layers from a few settings: what models of sequences share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from torch import nn

from metarnn.cells import Cell, check
from metarnn.layers import Recurrent
from metarnn.tasks import unit as units
from metarnn.tasks.language.model import MOST_LAYERS, parse_count, solve_width
from metarnn.tasks.unit import Make


@dataclass(frozen=True)
class StackOptions:
    """The recurrent layers' part of a configuration.

    Args:
        cell: the recurrent unit: lstm, gru, mingru, ..., or a file with a cell's graph (.json); one
            whose weights are generated is meta-lstm, meta-gru, ...
        width: hidden units of a layer; a cell of a file has its own, unless params asks for another
        layers: how many layers
        dropout: drop what enters the layers, what passes between them, and what leaves them
        zoneout: units that keep their old value for a step
        layer_norm: normalise inside the unit, where it can
        params: find the width that gives this many parameters, as in 200k
        engine: how the steps are run: auto, cpu, native, scan or eager
    """

    cell: str = "gru"
    width: int = 128
    layers: int = 1
    dropout: float = 0.0
    zoneout: float = 0.0
    layer_norm: bool = False
    params: str = ""
    engine: str = "auto"


O = TypeVar("O", bound=StackOptions)


def build_stack(
    inputs: int,
    options: StackOptions,
    *,
    bidirectional: bool = False,
    unit: Make | None = None,
) -> Recurrent:
    """The layers that the options describe, for rows of so many inputs.

    >>> build_stack(3, StackOptions(width=8, layers=2)).output_size
    8

    With `unit`, a function of the widths of input and state, that is the recurrent unit.
    """
    check.size("width", options.width)
    layers = check.size("layers", options.layers, most=MOST_LAYERS)
    made = build_unit(options, inputs) if unit is None else unit(inputs, options.width)
    return units.layers(
        options.cell,
        made,
        num_layers=layers,
        bidirectional=bidirectional,
        variational_dropout=options.dropout if layers > 1 else 0.0,
        zoneout=options.zoneout,
        engine=options.engine,
    )


def build_unit(options: StackOptions, inputs: int, width: int = 0) -> Cell:
    """The unit that the options name, of their width or of this one."""
    return units.unit(
        options.cell,
        inputs,
        width or options.width,
        rescale=bool(options.params),
        layer_norm=options.layer_norm,
    )


def maker(options: StackOptions) -> Make:
    """The unit that the options name, for any widths."""
    return lambda inputs, width: build_unit(options, inputs, width)


def solved(options: O, build: Callable[[O], nn.Module]) -> O:
    """The same options with the width that `params` asks for."""
    if not options.params:
        return options
    plain = replace(options, params="")
    budget = parse_count(options.params)
    return replace(plain, width=solve_width(budget, lambda w: build(replace(plain, width=w))))
