"""Zeros that are made once: on a GPU each new tensor of them is a launch."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def zeros(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, own: bool = False
) -> Tensor:
    """Zeros that nobody writes to (unless `own`), so that one does for all calls of a GPU."""
    # What is made during a capture belongs to the captured graph.
    if own or device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return torch.zeros(shape, dtype=dtype, device=device)
    return _zeros(shape, dtype, device)


@lru_cache(maxsize=64)
def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    made = torch.zeros(shape, dtype=dtype, device=device)
    torch.cuda.current_stream(device).synchronize()  # other streams may read it
    return made
