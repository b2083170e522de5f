"""The modes and transforms of torch that a call runs under: they do not see into kernels."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

PROXY = torch._C._TorchDispatchModeKey.PROXY


def transformed() -> bool:
    """Whether torch.func, forward-mode derivatives or a trace are active."""
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return True
    traced = torch._C._get_tracing_state() is not None
    return traced or torch._C._get_dispatch_mode(PROXY) is not None


def observed() -> bool:
    """Whether a mode intercepts torch's functions, such as fake tensors or a gradient rule."""
    return torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack() > 0


def watched(device: str) -> bool:
    """Whether one does, or autocast changes what they are given."""
    return observed() or torch.is_autocast_enabled(device)


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """The dtype in which autocast computes products of x, if it is enabled."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
