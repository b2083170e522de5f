"""Units by name: what a configuration's `cell` stands for, in the models of every task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metarnn.cells import Cell, cell, check
from metarnn.graph import GraphCell, read, rescaled
from metarnn.hyper import MetaRecurrent, Mogrifier
from metarnn.layers import Recurrent

Make = Callable[[int, int], Cell]  # widths of input and state -> unit

META = "meta-"  # before the name of a cell: its weights are generated
MOGRIFIER = "mogrifier-"  # before it: the input and the state scale each other first
ROUNDS, RANK = 2, 16  # of such a mogrifier
FILE = "cell.json"  # a run's own copy of a unit that no name stands for
# The options that name a unit, and the file of a run folder that holds it.
CELL_FILES = {"cell": FILE, "decoder_cell": "decoder.json"}


def unit(
    name: str, inputs: int, width: int, *, rescale: bool = False, layer_norm: bool = False
) -> Cell:
    """The unit that a name or a file (.json) stands for.

    >>> unit("meta-gru", 3, 8)
    GRU(input_size=3, hidden_size=8, ...

    A unit of a file has the width that it has there, unless `rescale` gives it another.
    """
    name = name.removeprefix(META)
    if name.startswith(MOGRIFIER):
        inner = unit(
            name.removeprefix(MOGRIFIER), inputs, width, rescale=rescale, layer_norm=layer_norm
        )
        return Mogrifier(inner, ROUNDS, min(RANK, inputs, width))
    if name.endswith(".json"):
        graph = read(name)
        return GraphCell(rescaled(graph, width) if rescale else graph).resized(inputs)
    more: dict[str, Any] = {"layer_norm": True} if layer_norm else {}
    if name == "jordan":
        more["outputs"] = width
    try:
        return cell(name, inputs, width, **more)
    except TypeError:
        check.refuse("layer_norm", layer_norm, f"False: {name} has none")


def layers(name: str, made: Cell, **options: Any) -> Recurrent:
    """Recurrent layers of a unit; a network writes its weights where its name begins with meta-.

    >>> layers("meta-gru", unit("meta-gru", 3, 8)).cell
    Generated(input_size=3, hidden_size=8, unit=GRU(...
    """
    return (MetaRecurrent if name.startswith(META) else Recurrent)(made, **options)


def name_of(made: Make) -> str:
    """What a configuration calls a unit that is given as a function: cell.json, if nothing else."""
    return getattr(made, "name", FILE)


def moved(name: str, file: str) -> str:
    """A unit that came from a file, from this one.

    >>> moved("meta-somewhere/found.json", "run/cell.json"), moved("gru", "run/cell.json")
    ('meta-run/cell.json', 'gru')
    """
    if not name.endswith(".json"):
        return name
    prefix = META if name.startswith(META) else ""
    if name.removeprefix(META).startswith(MOGRIFIER):
        prefix += MOGRIFIER
    return prefix + file


def saved(name: str, layer: Recurrent) -> Cell:
    """The cell that cell.json is to hold: of a unit from a file the unit alone, since what stands
    around it is made around it again."""
    return getattr(layer.cell, "unit", layer.cell) if name.endswith(".json") else layer.cell
