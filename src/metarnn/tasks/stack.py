"""Recurrent layers from a few settings: what models of sequences share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from torch import nn

from metarnn.cells import Cell, cell, check
from metarnn.graph import GraphCell, read
from metarnn.layers import Recurrent
from metarnn.tasks.language.model import MOST_LAYERS, parse_count, solve_width


@dataclass(frozen=True)
class StackOptions:
    """The recurrent layers' part of a configuration.

    Args:
        cell: the recurrent unit: lstm, gru, mingru, ..., or a file with a cell's graph (.json)
        width: hidden units of a layer; a cell of a file has its own
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


def build_stack(inputs: int, options: StackOptions, *, bidirectional: bool = False) -> Recurrent:
    """The layers that the options describe, for rows of so many inputs.

    >>> build_stack(3, StackOptions(width=8, layers=2)).output_size
    8
    """
    check.size("width", options.width)
    layers = check.size("layers", options.layers, most=MOST_LAYERS)
    return Recurrent(
        build_unit(options, inputs),
        layers,
        bidirectional=bidirectional,
        variational_dropout=options.dropout if layers > 1 else 0.0,
        zoneout=options.zoneout,
        engine=options.engine,
    )


def build_unit(options: StackOptions, inputs: int) -> Cell:
    """The unit that the options name."""
    if options.cell.endswith(".json"):
        return GraphCell(read(options.cell)).resized(inputs)
    more: dict[str, Any] = {"layer_norm": True} if options.layer_norm else {}
    if options.cell == "jordan":
        more["outputs"] = options.width
    try:
        return cell(options.cell, inputs, options.width, **more)
    except TypeError:
        check.refuse("layer_norm", options.layer_norm, f"False: {options.cell} has none")


def solved(options: O, build: Callable[[O], nn.Module]) -> O:
    """The same options with the width that `params` asks for."""
    if not options.params:
        return options
    plain = replace(options, params="")
    budget = parse_count(options.params)
    return replace(plain, width=solve_width(budget, lambda w: build(replace(plain, width=w))))
