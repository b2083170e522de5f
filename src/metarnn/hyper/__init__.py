"""Weights that are generated: units whose parameters another network writes."""

from __future__ import annotations

from typing import Any

from metarnn.cells import CELLS, cell
from metarnn.hyper.coupled import Coupled
from metarnn.hyper.forms import Form, Full, LowRank, Mixture, Number, Scale
from metarnn.hyper.hyperlstm import HyperLSTM
from metarnn.hyper.mogrifier import Mogrifier


def _mogrifier(
    input_size: int,
    hidden_size: int,
    *,
    unit: str = "lstm",
    rounds: int = 5,
    rank: int = 0,
    **options: Any,
) -> Mogrifier:
    return Mogrifier(cell(unit, input_size, hidden_size, **options), rounds, rank)


CELLS |= {"hyperlstm": HyperLSTM, "mogrifier": _mogrifier}

__all__ = [
    "Coupled",
    "Form",
    "Full",
    "HyperLSTM",
    "LowRank",
    "Mixture",
    "Mogrifier",
    "Number",
    "Scale",
]
