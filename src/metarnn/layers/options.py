"""The keyword arguments of layers, for those that pass them on; `Recurrent` says what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import torch


class Extras(TypedDict, total=False):
    """Keyword arguments that torch.nn's layers do not have; see `Recurrent`."""

    merge: str
    residual: bool
    feedback: bool
    variational_dropout: float
    input_dropout: float
    recurrent_dropout: float
    zoneout: float | tuple[float, ...]
    weight_drop: float | Mapping[str, float]
    init: str
    engine: str
    checkpoint_every: int


class Options(Extras, total=False):
    """Keyword arguments that every layer takes; see `Recurrent`."""

    batch_first: bool
    bidirectional: bool
    dropout: float
    device: Any
    dtype: torch.dtype | None
