"""Zeros that are made once: on a GPU each new tensor of them is a launch, on a CPU some 3 µs."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

KEPT = 1 << 18  # numbers; more take longer to be read than to be made, and would be kept for ever


def zeros(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, own: bool = False
) -> Tensor:
    """Zeros that nobody writes to (unless `own`), so that one does for all calls."""
    if own or math.prod(shape) > KEPT or _watched(device):
        return torch.zeros(shape, dtype=dtype, device=device)
    return _zeros(shape, dtype, device)


def _watched(device: torch.device) -> bool:
    """Whether what is made now belongs to somebody: a transform, a trace, a captured graph."""
    within = torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]
    if within or torch._C._len_torch_dispatch_stack():  # pyright: ignore[reportPrivateUsage]
        return True
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


@lru_cache(maxsize=64)
def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # what is made in it can never be differentiated
        made = torch.zeros(shape, dtype=dtype, device=device)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()  # other streams may read it
    return made
