"""Who else has a part in a call: torch's modes and transforms, which see into no kernel."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import torch
from torch.autograd import forward_ad

PROXY = torch._C._TorchDispatchModeKey.PROXY


def transformed() -> bool:
    """Whether torch.func, forward-mode derivatives or a trace are at work."""
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return True
    traced = torch._C._get_tracing_state() is not None
    return traced or torch._C._get_dispatch_mode(PROXY) is not None


def observed() -> bool:
    """Whether torch's functions are looked at: by rules of gradients, by fake tensors."""
    return torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack() > 0


def watched(device: str) -> bool:
    """Whether they are, or autocast changes what they are given."""
    return observed() or torch.is_autocast_enabled(device)
