"""Nested data with tensors in it: states, chunks of data, what is carried."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metarnn.layers.nested import map_tensors


def tensors(nested: Any) -> list[Tensor]:
    """The tensors of nested data, in order."""
    found: list[Tensor] = []
    map_tensors(found.append, nested)
    return found


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
