"""Models that fit into memory, known before memory is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from metarnn.cells import check
from metarnn.graph.files import memory

M = TypeVar("M", bound=nn.Module)


def affordable(make: Callable[[], M]) -> M:
    """The model that `make` makes, unless its weights alone are more than this machine can hold.

    What a file of a stranger says of widths is tried without memory first.
    """
    try:
        with torch.device("meta"):
            weights = make().state_dict().values()
        size = sum(w.numel() * w.element_size() for w in weights)
    except (RuntimeError, OverflowError) as error:  # sizes that 64 bits cannot count
        if "meta tensors" in str(error):  # a start that reads its own weights cannot be tried so
            return make()
        raise ValueError(f"a model of these sizes cannot be: {error}") from None
    if size > memory():
        check.refuse("width", f"a model of {size / 1e9:,.0f} GB", f"at most {memory() / 1e9:,.0f}")
    return make()
