"""Nested data with tensors in it: states, chunks of data, what is carried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
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


def tensors(nested: Any) -> list[Tensor]:
    """The tensors of nested data, in order."""
    found: list[Tensor] = []
    map_tensors(found.append, nested)
    return found


def refill(nested: Any, values: list[Tensor]) -> Any:
    """The nested data with other tensors in the places of its own."""
    each: Iterator[Tensor] = iter(values)
    return map_tensors(lambda _: next(each), nested)


def detached(nested: Any) -> Any:
    """The same data cut off from what made it, in memory of its own.

    A last state may be a view of the states of all steps, which would all be kept with it.
    """

    def cut(tensor: Tensor) -> Tensor:
        tensor = tensor.detach()
        shares = tensor.untyped_storage().nbytes() > tensor.nbytes
        return tensor.clone() if shares else tensor

    return map_tensors(cut, nested)


def leaves(nested: Any) -> tuple[Any, list[Tensor]]:
    """The same data cut off from what made it, and its tensors, to be differentiated by."""

    def leaf(tensor: Tensor) -> Tensor:
        return tensor.detach().requires_grad_(tensor.is_floating_point())

    fresh = map_tensors(leaf, nested)
    return fresh, [tensor for tensor in tensors(fresh) if tensor.requires_grad]


def split_time(chunk: Any, steps: int) -> list[Any]:
    """Stretches of so many steps of nested tensors [T, B, ...].

    >>> [x.shape[0] for x in split_time(torch.zeros(7, 2), 3)]
    [3, 3, 1]
    """
    length = max((len(tensor) for tensor in tensors(chunk)), default=0)
    starts = range(0, length, steps)
    return [map_tensors(lambda t, k=k: t[k : k + steps], chunk) for k in starts]


def rows(state: Any) -> Tensor:
    """A state, whose sequences stand along dimension 1, as one row a sequence: [B, S]."""
    parts = [t.transpose(0, 1).flatten(1) for t in tensors(state) if t.is_floating_point()]
    return torch.cat(parts, 1)
