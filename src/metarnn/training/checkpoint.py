"""A checkpoint is one safetensors file: tensors as such, all the rest as JSON in its header.

One file can be put in place by one rename, so there is always a whole one. Nothing in it is code:
there is no pickle to be afraid of, and what is loaded is checked before it is used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from metarnn.graph import sealed
from metarnn.graph.files import beside, content
from metarnn.graph.sealed import KEY, LONGEST_HEADER, ZEROS
from metarnn.training.tree import flatten, parse, unflatten

FORMAT, VERSION = "metarnn-checkpoint", 1
STATE = "metarnn"  # under which the header holds the JSON


class CheckpointError(ValueError):
    """A checkpoint that is damaged, or not one of this model."""


@contextmanager
def usable() -> Generator[None]:
    """Whatever is wrong with the content of a checkpoint, said in one way."""
    try:
        yield
    except CheckpointError:
        raise
    except (
        LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError,
    ) as error:  # fmt: skip
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(f"the checkpoint cannot be used: {what}") from error


def save(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write nested data with tensors to a file; what was there stays until all of it is written."""
    tensors: dict[str, Tensor] = {}
    plain = flatten(dict(state), "", tensors)
    header = {"format": FORMAT, "version": VERSION, "state": plain}
    _write(path, tensors, {STATE: json.dumps(header)})


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The nested data of a file, on the CPU; a CheckpointError says what is wrong with it."""
    tensors, metadata = _read(path)
    name = os.fspath(path)
    try:
        document = json.loads(metadata.get(STATE, "null"))
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise CheckpointError(f"{name} is no checkpoint of metarnn, only tensors")
        if document.get("version") != VERSION:
            found = document.get("version")
            raise CheckpointError(f"{name} has version {found!r}; this metarnn reads {VERSION}")
        state = unflatten(document.get("state"), tensors)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} is damaged: {error}") from None
    if not isinstance(state, dict):
        raise CheckpointError(f"{name} is damaged: its state is no object")
    return state


def save_weights(path: str | os.PathLike[str], weights: Mapping[str, Tensor]) -> None:
    """Write weights under their names in the model, for any program that reads safetensors."""
    _write(path, weights, {"format": "pt"})


def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The weights of a file, on the CPU; a CheckpointError says what is wrong with it."""
    return _read(path)[0]


def _write(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: dict[str, str]
) -> None:
    ready = _apart({name: t.detach().to("cpu").contiguous() for name, t in tensors.items()})
    with beside(path) as new:
        try:
            save_file(ready, new, {**metadata, KEY: ZEROS.decode()})
        except SafetensorError as error:
            raise OSError(f"cannot write {os.fspath(path)}: {error}") from None
        sealed.seal_tensors(new)


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    name = os.fspath(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no checkpoint {name}")
    try:
        _check_size(path)
        # Read at once: safe_open opens a file twice, between which a training may put a new one
        # there.
        data = content(path)
        sealed.verify_tensors(data)
        return parse(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} is damaged: {error}") from None


def _check_size(path: str | os.PathLike[str]) -> None:
    """Refuse a file that is not as long as its header says, before memory is taken for it."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > LONGEST_HEADER:
            raise ValueError(f"a header of {size:,} bytes: expected at most {LONGEST_HEADER:,}")
        header = json.loads(file.read(size))
        whole = os.fstat(file.fileno()).st_size
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    try:
        ends = [int(header[key]["data_offsets"][1]) for key in header if key != "__metadata__"]
    except (KeyError, TypeError, IndexError, OverflowError):
        raise ValueError("its header does not tell where tensors lie") from None
    if (end := max(ends, default=0)) != whole - 8 - size:
        raise ValueError(f"its tensors take {end:,} bytes, and {whole - 8 - size:,} are there")


def weights(model: nn.Module) -> dict[str, Tensor]:
    """What a model has learned, each tensor once: of tied ones only the first name."""
    seen: set[int] = set()
    found: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def load_weights(model: nn.Module, found: Mapping[str, Any], name: str = "the checkpoint") -> None:
    """Give a model its weights, once every name, shape and number type is known to be right."""
    expected = weights(model)
    for key, own in expected.items():
        if not isinstance(value := found.get(key), Tensor):
            raise CheckpointError(f"{name} has no weight {key!r}, which the model has")
        if value.shape != own.shape or value.dtype != own.dtype:
            raise CheckpointError(
                f"{name}: the weight {key!r} is {_described(value)}, and in the model "
                f"{_described(own)}. Was it trained with other settings?"
            )
        if not value.isfinite().all():
            raise CheckpointError(
                f"{name}: the weight {key!r} has values that are not finite (NaN or infinity). "
                "The training diverged: train again with a smaller learning rate"
            )
    for key in found:
        if key not in expected:
            raise CheckpointError(f"{name} has a weight {key!r}, which the model has not")
    with torch.no_grad():
        for key, own in expected.items():
            own.copy_(found[key])


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that share memory as copies: safetensors has no notion of sharing."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        if place in seen and tensor.numel():
            tensors[name] = tensor.clone()
        seen.add(place)
    return tensors


def _described(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
