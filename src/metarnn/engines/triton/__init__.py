"""Any cell on a GPU: its graph as one Triton kernel for all time steps, forward and backward."""

from __future__ import annotations

import os
import warnings
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from metarnn.cells import Cell
from metarnn.engines import cpu
from metarnn.graph import trace_cell

if TYPE_CHECKING:
    from torch import Tensor

    from metarnn.cells import State
    from metarnn.engines.recurrence import Recurrence
    from metarnn.engines.triton.halves import Halves


class CannotLaunch(RuntimeError):
    """A kernel could not be compiled, or not be launched the first time."""


# Operations of a step. The time that Triton takes grows faster than with their square: a mixture of
# 771 takes it two to four minutes, one of 954 was not done after five.
MOST = 900
TYPES = (torch.float32, torch.bfloat16, torch.float16)
_broken: list[str] = []  # why a kernel could not be made in this process, once it could not


def broken() -> bool:
    return bool(_broken)


def interpreted() -> bool:
    """Whether Triton's interpreter runs kernels, on a CPU: one program after the other."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@lru_cache(maxsize=1)
def _installed() -> bool:
    return find_spec("triton") is not None


def obstacle(cell: Cell, device: str, dtype: torch.dtype) -> str:
    """Why this engine cannot run a cell; empty when nothing is known to stand in the way."""
    if device != "cuda" and not (interpreted() and device == "cpu"):
        return f"it runs on a GPU, the layer is on {device}"
    if not _installed():
        return "Triton is not installed (pip install triton)"
    if dtype not in TYPES:
        return f"it computes in float32, bfloat16 or float16, not in {dtype}"
    return _broken[0] if _broken else cpu.untraceable(cell) or _too_large(cell)


@lru_cache(maxsize=1024)
def _too_large(cell: Cell) -> str:
    count = len(trace_cell(cell).nodes)
    if count <= MOST:
        return ""
    return f"its step has {count:,} operations, for which Triton would compile too long"


def run(recurrence: Recurrence, fused: Any = None) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one."""
    from metarnn.engines.triton.loop import run as loop  # imports Triton, which takes a second

    return loop(recurrence, fused) if fused else loop(recurrence)


def side_by_side(cell: Cell, x: Tensor) -> Halves | None:
    """Halves of a GPU for two loops over x, if that is faster than one after the other."""
    if not x.is_cuda:
        return None
    from metarnn.engines.triton.halves import halves

    return halves(cell, x)


def describe(cell: Cell, x: Tensor, **options: bool) -> tuple[str, ...]:
    """How the work of a call is shared, in words."""
    from metarnn.engines.triton.words import describe

    narrow = torch.is_autocast_enabled(x.device.type)
    dot = torch.get_autocast_dtype(x.device.type) if narrow else x.dtype
    return describe(cell, x.shape[1], dot, x.device, **options)


def give_up(error: Exception) -> None:
    """Use the engine no more in this process, and say so once."""
    if not _broken:
        _broken.append(f"a kernel could not be compiled: {error}")
        warnings.warn(
            f"metarnn runs without generated GPU kernels, slower: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
