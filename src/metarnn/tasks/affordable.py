"""Models that fit into memory, known before memory is taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.graph.files import memory

M = TypeVar("M", bound=nn.Module)


def affordable(make: Callable[[], M], weights: Path | None = None) -> M:
    """The model that `make` makes, unless its weights alone are more than this machine can hold.

    What a file of a stranger says of widths is tried without memory first, and compared with the
    shapes in the header of the file of weights, where there is one.
    """
    try:
        with torch.device("meta"):
            empty = make().state_dict()
        size = sum(w.numel() * w.element_size() for w in empty.values())
    except (RuntimeError, OverflowError) as error:  # sizes that 64 bits cannot count
        if "meta tensors" in str(error):  # a start that reads its own weights cannot be tried so
            return make()
        raise ValueError(f"a model of these sizes cannot be: {error}") from None
    if weights is not None and weights.is_file():
        _compare(empty, weights)
    if size > memory():
        check.refuse("width", f"a model of {size / 1e9:,.0f} GB", f"at most {memory() / 1e9:,.0f}")
    return make()


def _compare(empty: Mapping[str, Tensor], path: Path) -> None:
    """Refuse weights of other shapes; what else is wrong with the file shows when it is loaded."""
    try:
        opened: Any = safe_open  # safetensors has no types
        with opened(path, "pt") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError):
        return
    for name, weight in empty.items():
        if shapes.get(name, list(weight.shape)) != list(weight.shape):
            raise ValueError(
                f"{path}: the weight {name!r} is {shapes[name]}, and in the model "
                f"{list(weight.shape)}. Was it trained with other settings?"
            )
