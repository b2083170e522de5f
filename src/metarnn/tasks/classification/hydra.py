"""MultiRocket-Hydra with ridge (Dempster et al. 2023), where the package aeon is installed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import torch

from metarnn.tasks.classification.examples import Part

SHORTEST = 10  # steps that its kernels need
# Measured with aeon 1.6 on one core of a laptop, 4,000 to 200,000 steps.
START_SECONDS = 8.0
COMPILE_SECONDS = 60.0  # once; numba then keeps the result on the disk
STEP_SECONDS = 2e-4
FEATURES, FLOPS = 56_000, 8e9
KERNELS = "_multirocket._transform*.nbi"  # what numba has compiled


def installed() -> bool:
    return importlib.util.find_spec("aeon") is not None


def compiled() -> bool:
    """Whether numba has compiled the kernels in an earlier call."""
    spec = importlib.util.find_spec("aeon")
    places = [Path(os.environ.get("NUMBA_CACHE_DIR") or Path.home() / ".cache" / "numba")]
    if spec is not None and spec.origin is not None:
        places.append(Path(spec.origin).parent / "transformations")
    return any(next(place.rglob(KERNELS), None) is not None for place in places)


def seconds(train: Part, test: Part) -> float:
    """An estimate of the time that `answers` takes."""
    steps, channels = (len(train) + len(test)) * len(train.x[0]), train.x[0].shape[1]
    ridge = 4 * FEATURES * len(train) ** 2 / FLOPS
    start = START_SECONDS + (0.0 if compiled() else COMPILE_SECONDS)
    return start + STEP_SECONDS * steps * channels**0.5 + ridge


def answers(train: Part, test: Part) -> np.ndarray:
    """The class of each test sequence; all sequences have one length."""
    from aeon.classification.convolution_based import (  # pyright: ignore[reportMissingImports]
        MultiRocketHydraClassifier,
    )

    with torch.random.fork_rng(devices=[]):  # it seeds torch's own generator
        model = MultiRocketHydraClassifier(random_state=0)
        model.fit(_stacked(train), np.array(train.y))
        return np.asarray(model.predict(_stacked(test)))


def compile_kernels() -> None:
    """Have numba compile the kernels, which takes a minute, for series of one and more channels."""
    for channels in (1, 2):
        x = np.random.default_rng(0).normal(size=(8, 20, channels)).astype(np.float32)
        part = Part(tuple(x), tuple(k % 2 for k in range(8)))
        answers(part, part)


def _stacked(part: Part) -> np.ndarray:
    """[N, C, T]"""
    return np.stack(part.x).transpose(0, 2, 1).astype(np.float64)
