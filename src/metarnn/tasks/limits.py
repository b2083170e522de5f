"""The range of every number in a configuration, in one table."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from metarnn.cells import check

COUNT = (0, 2**31 - 1)
REAL = (0.0, 1e30)
POSITIVE = (1, 2**31 - 1)
SIDE_BY_SIDE = (1, 2**20)  # sequences in a batch
SHARE = (0.0, 1.0)
WIDEST, DEEPEST, MOST_STEPS = 2**16, 128, 1_000_000
LIMITS: dict[str, tuple[float, float]] = {
    "accumulate": SIDE_BY_SIDE,
    "ar": REAL,
    "batch": SIDE_BY_SIDE,
    "beam": (1, 10_000),
    "betas": SHARE,
    "checkpoint": COUNT,
    "checkpoint_every": (-1, 2**31 - 1),
    "clip": REAL,
    "context": (1, WIDEST),
    "cutoffs": POSITIVE,
    "decoder_layers": (0, DEEPEST),
    "dropout": SHARE,
    "ema": SHARE,
    "embedding": (0, WIDEST),
    "embedding_dropout": SHARE,
    "epochs": REAL,
    "evaluation_batch": SIDE_BY_SIDE,
    "floor": SHARE,
    "heads": (1, 1024),
    "hidden_dropout": SHARE,
    "history": (1, MOST_STEPS),
    "horizon": (1, MOST_STEPS),
    "hyper": (0, WIDEST),
    "inner_lr": REAL,
    "inner_steps": COUNT,
    "input_dropout": SHARE,
    "k1": (1, MOST_STEPS),
    "k2": (1, MOST_STEPS),
    "layers": (1, DEEPEST),
    "length": (0, 2**24),
    "length_penalty": (-1e30, 1e30),
    "lines": COUNT,
    "log_every": POSITIVE,
    "longest": COUNT,
    "lookback": (0, MOST_STEPS),
    "lr": REAL,
    "max_length": (0, MOST_STEPS),
    "max_size": COUNT,
    "members": (1, 100),
    "min_frequency": COUNT,
    "minutes": REAL,
    "momentum": SHARE,
    "noise": REAL,
    "nonmono": COUNT,
    "omega_deviation": REAL,
    "omega_phi": REAL,
    "omega_reconstruction": REAL,
    "omega_smooth": REAL,
    "omega_spectral": REAL,
    "output_dropout": SHARE,
    "patch": (0, MOST_STEPS),
    "patience": COUNT,
    "queries": (1, 100_000),
    "rank": (0, WIDEST),
    "reconstruct": REAL,
    "regularise": REAL,
    "reset": SHARE,
    "rounds": (0, DEEPEST),
    "sampling": SHARE,
    "sampling_steps": COUNT,
    "save_every": COUNT,
    "seed": (0, 2**62),
    "shots": (1, 100_000),
    "smoothing": SHARE,
    "spike": REAL,
    "steps": COUNT,
    "strength": REAL,
    "stride": POSITIVE,
    "tar": REAL,
    "tasks": POSITIVE,
    "test_shots": (0, 100_000),
    "validate_every": COUNT,
    "warmup": COUNT,
    "ways": (1, 100_000),
    "weight_decay": REAL,
    "weight_drop": SHARE,
    "width": (1, WIDEST),
    "zoneout": SHARE,
}


def check_limits(options: Any) -> None:
    """Refuse a number of a dataclass that is outside its range; the ValueError names the field."""
    for field in dataclasses.fields(options):
        if field.name not in LIMITS:
            continue
        value = getattr(options, field.name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, int | float) and not isinstance(each, bool):
                _check(field.name, each)


def _check(name: str, value: float) -> None:
    least, most = LIMITS[name]
    finite = isinstance(value, int) or math.isfinite(value)
    if not finite:
        check.refuse(name, value, "a finite number")
    if value < least:
        check.refuse(name, value, f"at least {least:,}")
    if value > most:
        check.refuse(name, value, f"at most {most:,}")
