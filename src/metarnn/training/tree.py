"""Nested data with tensors in it, taken apart into plain JSON and named tensors, and put back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

TENSOR, TUPLE = "$tensor", "$tuple"


def flatten(nested: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The nested data as what JSON can hold; its tensors go into `tensors`, named by their place.

    >>> tensors = {}
    >>> flatten({"step": 3, "state": (torch.zeros(2), None)}, "run", tensors)
    {'step': 3, 'state': {'$tuple': [{'$tensor': 'run.state.0'}, None]}}
    >>> list(tensors)
    ['run.state.0']
    """
    if isinstance(nested, Tensor):
        tensors[name] = nested
        return {TENSOR: name}
    if isinstance(nested, Mapping):
        for key in nested:
            if not isinstance(key, str) or key.startswith("$"):
                raise TypeError(f"{name}: the key {key!r} cannot be saved, only plain strings can")
        return {key: flatten(each, _join(name, key), tensors) for key, each in nested.items()}
    if isinstance(nested, tuple | list):
        items = [flatten(each, _join(name, k), tensors) for k, each in enumerate(nested)]
        return {TUPLE: items} if isinstance(nested, tuple) else items
    if nested is None or isinstance(nested, bool | int | float | str):
        return nested
    raise TypeError(f"{name}: a {type(nested).__name__} cannot be saved, only plain data can")


def _join(name: str, key: str | int) -> str:
    return f"{name}.{key}" if name else str(key)


def unflatten(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What `flatten` took apart; a ValueError names a tensor that is not there."""
    if isinstance(plain, dict):
        if plain.keys() == {TENSOR}:
            name = plain[TENSOR]
            if not isinstance(name, str) or name not in tensors:
                raise ValueError(f"the tensor {name!r} is missing")
            return tensors[name]
        if plain.keys() == {TUPLE} and isinstance(plain[TUPLE], list):
            return tuple(unflatten(each, tensors) for each in plain[TUPLE])
        return {key: unflatten(each, tensors) for key, each in plain.items()}
    if isinstance(plain, list):
        return [unflatten(each, tensors) for each in plain]
    return plain


def pack(nested: Any) -> Tensor:
    """Nested data as bytes, for another process; no pickle."""
    tensors: dict[str, Tensor] = {}
    plain = flatten([nested], "", tensors)
    ready = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    return torch.frombuffer(bytearray(save(ready, {"plain": json.dumps(plain)})), dtype=torch.uint8)


def unpack(message: Tensor) -> Any:
    """What `pack` packed."""
    tensors, metadata = parse(message.numpy().tobytes())
    return unflatten(json.loads(metadata["plain"]), tensors)[0]


def parse(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of safetensors data; a ValueError where it is damaged."""
    try:
        tensors = {name: tensor.clone() for name, tensor in load(data).items()}
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError, KeyError, RuntimeError, TypeError) as error:
        # KeyError: a number type that torch does not have. RuntimeError and TypeError: a shape with
        # a 0 in it whose other sizes are too large.
        raise ValueError(str(error)) from None
    return tensors, header.get("__metadata__") or {}
