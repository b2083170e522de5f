"""Nested data with tensors in it, such as the state of a model, changed tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor


def map_tensors(function: Callable[..., Any], nested: Any, *others: Any) -> Any:
    """The nested data with a function of each tensor, and of those at its place in `others`.

    >>> map_tensors(lambda t: t + 1, [torch.zeros(2), (None, "text")])
    [tensor([1., 1.]), (None, 'text')]
    """
    if isinstance(nested, Tensor):
        return function(nested, *others)
    if isinstance(nested, Mapping):
        return {k: map_tensors(function, v, *(o[k] for o in others)) for k, v in nested.items()}
    if isinstance(nested, tuple | list):
        items = [map_tensors(function, *each) for each in zip(nested, *others, strict=True)]
        if hasattr(nested, "_fields"):  # a named tuple takes its items one by one
            return type(nested)(*items)
        return type(nested)(items)
    if is_dataclass(nested) and not isinstance(nested, type):
        names = [field.name for field in fields(nested) if field.init]
        changed = {
            name: map_tensors(function, getattr(nested, name), *(getattr(o, name) for o in others))
            for name in names
        }
        return replace(nested, **changed)
    return nested


def select(state: Any, rows: Tensor) -> Any:
    """The sequences `rows` of a state, in that order: they stand along dimension 1.

    >>> h, c = select((torch.zeros(1, 3, 8), torch.zeros(1, 3, 8)), torch.tensor([2, 2]))
    >>> h.shape
    torch.Size([1, 2, 8])
    """
    return map_tensors(lambda tensor: tensor.index_select(1, rows), state)
