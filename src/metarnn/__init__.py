"""Recurrent sequence models whose unit is learned; known units are points in the same space."""

from metarnn import cells, hyper, meta
from metarnn.cells import Cell, LinearCell, Map, Theta, cell
from metarnn.engines import explain
from metarnn.graph import GraphCell
from metarnn.hyper import MetaRecurrent
from metarnn.layers import (
    GRU,
    LSTM,
    ONLSTM,
    QRNN,
    RNN,
    SRU,
    Jordan,
    MinGRU,
    MinLSTM,
    Recurrent,
)

__version__ = "0.1.0"

__all__ = [
    "GRU",
    "LSTM",
    "ONLSTM",
    "QRNN",
    "RNN",
    "SRU",
    "Cell",
    "GraphCell",
    "Jordan",
    "LinearCell",
    "Map",
    "MetaRecurrent",
    "MinGRU",
    "MinLSTM",
    "Recurrent",
    "Theta",
    "__version__",
    "cell",
    "cells",
    "explain",
    "hyper",
    "meta",
]
