"""A model at work: fed one step at a time, many streams at once, in constant memory."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.graph.files import beside
from metarnn.tasks.pretrained import from_pretrained


class Session:
    """Streams of inputs that a model reads step by step, each with a state of its own.

    >>> from metarnn.layers import GRU
    >>> session = Session(GRU(3, 8))
    >>> session.feed(torch.randn(2, 3), ["anna", "ben"]).shape
    torch.Size([2, 8])
    >>> session.feed(torch.randn(2, 3), ["ben", "carl"]).shape  # ben goes on, carl begins
    torch.Size([2, 8])
    >>> session.streams
    ['anna', 'ben', 'carl']

    Threads may share a session: it serves one call after the other. The order in which two threads
    feed one stream is theirs to settle.

    model  anything with `step(x, state) -> y, state` whose states have the sequences along
           dimension 1: a recurrent layer, a language model, a classifier in one direction
    """

    def __init__(self, model: nn.Module) -> None:
        if not callable(getattr(model, "step", None)):
            kinds = "a recurrent layer, a language model or a classifier: something with a step"
            check.refuse("model", type(model).__name__, kinds)
        self.model: Any = model.eval()
        self._place: dict[Hashable, int] = {}
        self._state: Any = None
        self._lock = threading.RLock()  # of places and states, which belong together

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Session:
        """A session with the model of a run, or of a folder that `save_pretrained` wrote."""
        return cls(from_pretrained(folder))

    @property
    def streams(self) -> list[Any]:
        """The streams that have begun."""
        with self._lock:
            return list(self._place)

    @torch.no_grad()
    def feed(self, x: Tensor, streams: Sequence[Hashable] | None = None) -> Tensor:
        """The next step of each of these streams, one a row of x; a stream not yet known begins.

        Without names the rows are streams 0, 1, …
        """
        names = range(len(x)) if streams is None else streams
        if len(names) != len(x) or len(set(names)) != len(names):
            check.refuse("streams", list(names)[:10], f"{len(x)} different ones, one a row of x")
        with self._lock:
            return self._step(x, names)

    def _step(self, x: Tensor, names: Sequence[Hashable]) -> Tensor:
        known = [self._place.get(name, -1) for name in names]
        if known == list(range(len(self._place))) and known:
            y, self._state = self.model.step(x, self._state)  # all of them, as they lie
            return y
        old = [k for k, place in enumerate(known) if place >= 0]
        new = [k for k, place in enumerate(known) if place < 0]
        found: list[Tensor] = []
        if old:
            places = torch.tensor([known[k] for k in old], device=x.device)
            y, state = self.model.step(x[old], _mapped(self._state, lambda s: s[:, places]))
            self._state = _merged(self._state, state, lambda s, n: s.index_copy(1, places, n))
            found.append(y)
        if new:
            y, state = self.model.step(x[new], None)
            if self._state is None:
                self._state = state
            else:
                self._state = _merged(self._state, state, lambda s, n: torch.cat([s, n], 1))
            for k in new:
                self._place[names[k]] = len(self._place)
            found.append(y)
        return torch.cat(found)[torch.tensor([*old, *new], device=x.device).argsort()]

    def end(self, streams: Sequence[Hashable]) -> None:
        """Forget these streams: what is fed to one of their names begins anew."""
        with self._lock:
            for name in streams:
                if name not in self._place:
                    check.refuse("streams", name, f"one that has begun: {self.streams[:10]}")
            left = [name for name in self._place if name not in set(streams)]
            keep = torch.tensor([self._place[name] for name in left], dtype=torch.long)
            self._state = _mapped(self._state, lambda s: s[:, keep.to(s.device)]) if left else None
            self._place = {name: k for k, name in enumerate(left)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the states of all streams, whose names must be texts or numbers."""
        tensors: dict[str, Tensor] = {}
        with self._lock:
            shape, streams = _flattened(self._state, tensors), self.streams
        notes = {"streams": json.dumps(streams), "state": json.dumps(shape)}
        with beside(path) as new:
            new.write_bytes(save(tensors, {"format": "metarnn-session", **notes}))

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Go on from states that were saved; the model must be the one they are of."""
        name = os.fspath(path)
        if not os.path.isfile(name):
            raise FileNotFoundError(f"there is no file {name}")
        try:
            with safe_open(name, "pt") as file:
                notes = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            if notes.get("format") != "metarnn-session":
                raise ValueError("it holds no states of a session")
            device = next(self.model.parameters()).device
            state = _unflattened(json.loads(notes["state"]), tensors, device)
            names = json.loads(notes["streams"])
            _check_streams(names, tensors)
        except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise ValueError(f"{name} cannot be restored: {error}") from None
        with self._lock:
            self._state, self._place = state, {name: k for k, name in enumerate(names)}


def _check_streams(names: Any, tensors: dict[str, Tensor]) -> None:
    """One column of every state a stream."""
    if not isinstance(names, list) or not all(isinstance(n, str | int | float) for n in names):
        raise ValueError("the names of its streams are no texts or numbers")
    if len(set(names)) != len(names):
        raise ValueError("two of its streams have one name")
    for key, tensor in tensors.items():
        if tensor.dim() < 2 or tensor.shape[1] != len(names) or not tensor.is_floating_point():
            found = f"{list(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
            raise ValueError(
                f"{key} is {found}: expected a column for each of {len(names)} streams"
            )


def _mapped(state: Any, f: Callable[[Tensor], Tensor]) -> Any:
    return f(state) if isinstance(state, Tensor) else tuple(_mapped(part, f) for part in state)


def _merged(state: Any, new: Any, f: Callable[[Tensor, Tensor], Tensor]) -> Any:
    if isinstance(state, Tensor):
        return f(state, new)
    return tuple(_merged(s, n, f) for s, n in zip(state, new, strict=True))


def _flattened(state: Any, tensors: dict[str, Tensor]) -> Any:
    """The nesting of a state, with names for the tensors."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        tensors[f"state.{len(tensors)}"] = state.cpu().contiguous()
        return f"state.{len(tensors) - 1}"
    return [_flattened(part, tensors) for part in state]


def _unflattened(shape: Any, tensors: dict[str, Tensor], device: torch.device) -> Any:
    if isinstance(shape, str):
        return tensors[shape].to(device)
    return None if shape is None else tuple(_unflattened(s, tensors, device) for s in shape)


def flat(state: Any) -> list[Tensor]:
    """The tensors of a state, in their order."""
    if isinstance(state, Tensor):
        return [state]
    return [tensor for part in state for tensor in flat(part)]
