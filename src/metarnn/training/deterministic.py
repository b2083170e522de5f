"""The same bits each time, also where that costs speed."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import torch


@contextmanager
def deterministic(asked: bool) -> Generator[None]:
    """Inside the block torch computes only what gives the same bits each time, if that is asked."""
    if not asked:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    # cuBLAS reads it when it is first used; with less room its sums come in any order.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
