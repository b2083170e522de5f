"""The state of every random generator, as data."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy
import torch


def seed_all(seed: int) -> None:
    """Seed torch's generators, Python's and numpy's."""
    torch.manual_seed(seed)  # those of every GPU too
    random.seed(seed)
    numpy.random.seed(seed % 2**32)  # noqa: NPY002  # the global one is what others draw from


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """Seed all generators inside, and restore their states after: what is drawn inside follows from
    the seed alone, whatever was drawn before."""
    before = states()
    seed_all(seed)
    try:
        yield
    finally:
        restore(before)


def states() -> dict[str, Any]:
    """Where every generator stands."""
    version, words, gauss = random.getstate()
    legacy = numpy.random.get_state(legacy=False)  # noqa: NPY002
    assert isinstance(legacy, dict)
    return {
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else [],
        "python": [version, list(words), gauss],
        "numpy": {
            "keys": legacy["state"]["key"].tolist(),
            "pos": int(legacy["state"]["pos"]),
            "has_gauss": int(legacy["has_gauss"]),
            "gauss": float(legacy["gauss"]),
        },
    }


def restore(found: dict[str, Any]) -> None:
    """Put every generator where it stood; a ValueError says where that cannot be."""
    try:
        version, words, gauss = found["python"]
        random.setstate((version, tuple(words), gauss))
        legacy = found["numpy"]
        keys = numpy.array(legacy["keys"], dtype=numpy.uint32)
        numpy.random.set_state(  # noqa: NPY002
            ("MT19937", keys, legacy["pos"], legacy["has_gauss"], legacy["gauss"])
        )
        torch.set_rng_state(found["torch"])
        if found["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state(found["cuda"][0])
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(
            f"the state of the random generators cannot be restored: {error}"
        ) from None
