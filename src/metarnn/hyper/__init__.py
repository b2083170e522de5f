"""Weights that are generated: units whose parameters another network writes."""

from __future__ import annotations

from typing import Any

from metarnn.cells import CELLS, cell
from metarnn.hyper.coupled import Coupled
from metarnn.hyper.descriptors import (
    Descriptor,
    Embedded,
    Join,
    Metadata,
    OneHot,
    Text,
    Vector,
)
from metarnn.hyper.encoder import Encoder
from metarnn.hyper.encoders import Convolution, RecurrentEncoder, Transformer
from metarnn.hyper.forms import Form, Full, LowRank, Mixture, Number, Scale, Structure
from metarnn.hyper.generated import Generated
from metarnn.hyper.generators import Attention, Convolutional, Dense, Generator, Rolling
from metarnn.hyper.hyperlstm import HyperLSTM
from metarnn.hyper.hypernetize import Hypernetized, hypernetize
from metarnn.hyper.inspect import Motion, motion
from metarnn.hyper.meta import MetaRecurrent
from metarnn.hyper.modules import ModuleEncoder, ModuleGenerator, TorchRecurrent
from metarnn.hyper.mogrifier import Mogrifier
from metarnn.hyper.omega import Omega
from metarnn.hyper.support import SupportSet
from metarnn.hyper.text import HashedNgrams, MiniLM
from metarnn.hyper.watch import Record, watch


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
    "Attention",
    "Convolution",
    "Convolutional",
    "Coupled",
    "Dense",
    "Descriptor",
    "Embedded",
    "Encoder",
    "Form",
    "Full",
    "Generated",
    "Generator",
    "HashedNgrams",
    "HyperLSTM",
    "Hypernetized",
    "Join",
    "LowRank",
    "MetaRecurrent",
    "Metadata",
    "MiniLM",
    "Mixture",
    "ModuleEncoder",
    "ModuleGenerator",
    "Mogrifier",
    "Motion",
    "Number",
    "Omega",
    "OneHot",
    "Record",
    "RecurrentEncoder",
    "Rolling",
    "Scale",
    "Structure",
    "SupportSet",
    "Text",
    "TorchRecurrent",
    "Transformer",
    "Vector",
    "hypernetize",
    "motion",
    "watch",
]
