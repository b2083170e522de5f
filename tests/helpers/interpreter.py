"""Triton without a GPU: its interpreter runs kernels on a CPU.

Triton decides when it is imported, and torch imports it on its own. So the tests import it first
thing, as an interpreter, and say so in the environment only while they use it: to all other tests
this is a machine without a GPU. A machine with one runs the same tests on it.
"""

import os
from importlib.util import find_spec
from typing import Any

import pytest
import torch

INSTALLED = find_spec("triton") is not None
ON_GPU = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
DEVICE = "cuda" if ON_GPU else "cpu"

if INSTALLED and not ON_GPU:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        import triton  # noqa: F401


def shared(
    program: Any,
    batch: int,
    weight_bytes: int,
    programs: int,
    budget: float,
    partial: bool,
    publish: bool = False,
    sequences: int = 16,
) -> Any:
    """Work shared among so many programs, in two groups; published, where that can be."""
    from metarnn.engines.triton import tiling

    share = tiling.share_work(program, programs, 2, sequences)
    tilings = (
        tiling.shared(program, batch, weight_bytes, share, budget, partial, way)
        for way in (publish, False)
    )
    return next(filter(None, tilings))
