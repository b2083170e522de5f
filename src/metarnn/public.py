"""The names that `import metarnn` offers."""

import metarnn.cells as cells
import metarnn.hyper as hyper
import metarnn.meta as meta
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
from metarnn.study import Study, learn

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
    "Study",
    "Theta",
    "cell",
    "cells",
    "explain",
    "hyper",
    "learn",
    "meta",
]
