"""Recurrent cells: what one time step computes, apart from weights, loops and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metarnn.cells import check
from metarnn.cells.base import Cell, Drive, LinearCell, Map, State, Theta, shapes
from metarnn.cells.elman import Elman
from metarnn.cells.feedback import Feedback
from metarnn.cells.gru import GRU
from metarnn.cells.jordan import Jordan
from metarnn.cells.lstm import LSTM
from metarnn.cells.minimal import MinGRU, MinLSTM
from metarnn.cells.mixed import Mixed
from metarnn.cells.onlstm import ONLSTM
from metarnn.cells.qrnn import QRNN
from metarnn.cells.sru import SRU

# By name; `hyper` adds its own.
CELLS: dict[str, Callable[..., Cell]] = {
    "elman": Elman,
    "jordan": Jordan,
    "lstm": LSTM,
    "gru": GRU,
    "qrnn": QRNN,
    "sru": SRU,
    "mingru": MinGRU,
    "minlstm": MinLSTM,
    "onlstm": ONLSTM,
    "mixed": Mixed,
}


def cell(name: str, input_size: int, hidden_size: int, **options: Any) -> Cell:
    """A built-in cell by its name.

    >>> cell("lstm", 8, 16, peephole=True)
    LSTM(input_size=8, hidden_size=16, proj_size=0, bias=True, peephole=True, ...)
    """
    return CELLS[check.one_of("name", name, CELLS)](input_size, hidden_size, **options)


__all__ = [
    "CELLS",
    "GRU",
    "LSTM",
    "ONLSTM",
    "QRNN",
    "SRU",
    "Cell",
    "Drive",
    "Elman",
    "Feedback",
    "Jordan",
    "LinearCell",
    "Map",
    "MinGRU",
    "MinLSTM",
    "Mixed",
    "State",
    "Theta",
    "cell",
    "check",
    "shapes",
]
