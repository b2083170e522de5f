"""Batches of a long text: readers that walk round it, or segments in random order.

Every random choice follows from the seed and from numbers that are the same on all shards, so that
the position is a few plain numbers and shards together always make the one global batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.tasks.language.tokens import Tokens
from metarnn.tasks.language.vocabulary import BOS
from metarnn.tasks.task import Shard


@dataclass
class Batch:
    """Stretches of text, [T, B]. The input of a document's first token is `<bos>`.

    fresh   [B], true where a stretch does not go on from the state carried over, but begins anew
    resets  [T, B], true where a document begins within a stretch; None where none does
    scale   T over the usual T: what a learning rate is to be multiplied with
    """

    inputs: Tensor
    targets: Tensor
    fresh: Tensor
    resets: Tensor | None = None
    scale: float = 1.0

    def to(self, device: torch.device | str) -> Batch:
        moved = (self.inputs.to(device), self.targets.to(device), self.fresh.to(device))
        resets = None if self.resets is None else self.resets.to(device)
        return Batch(*moved, resets, self.scale)

    def split(self, steps: int) -> list[Batch]:
        """The same in stretches of so many steps, each going on from the one before."""
        found = []
        for k, inputs in enumerate(self.inputs.split(steps)):
            here = slice(k * steps, k * steps + len(inputs))
            fresh = torch.zeros_like(self.fresh) if k else self.fresh
            resets = None if self.resets is None else self.resets[here]
            found.append(Batch(inputs, self.targets[here], fresh, resets, self.scale))
        return found


def make_batch(tokens: Tokens, places: np.ndarray, length: int) -> Batch:
    """The stretches of `length` tokens that begin at these places."""
    stretches = np.stack([tokens.read(int(place) - 1, length + 1) for place in places], 1)
    starts = np.stack([tokens.starts(int(place), length) for place in places], 1)
    inputs = np.where(starts, BOS, stretches[:-1])
    fresh = starts[0].copy()
    starts[0] = False
    resets = torch.from_numpy(starts) if starts.any() else None
    tensors = (torch.from_numpy(inputs), torch.from_numpy(stretches[1:].copy()))
    return Batch(*tensors, torch.from_numpy(fresh), resets)


class _Batches:
    """What both kinds share: sizes, the shard's columns, the position."""

    kind = ""

    def __init__(self, tokens: Tokens, batch: int, length: int, seed: int, shard: Shard) -> None:
        check.size("batch", batch)
        check.size("length", length)
        if batch % shard.count:
            check.refuse("batch", batch, f"a multiple of the {shard.count} processes")
        if len(tokens) < batch:
            advice = "Choose a smaller batch, or more text."
            check.refuse("batch", batch, f"at most the {len(tokens)} tokens there are", advice)
        self.tokens, self.batch, self.length, self.seed = tokens, batch, length, seed
        mine = batch // shard.count
        self.columns = np.arange(shard.index * mine, (shard.index + 1) * mine)
        self.step = 0

    def __iter__(self) -> Self:
        return self

    def random(self, *keys: int) -> np.random.Generator:
        """A source of chance for one decision, the same wherever and whenever it is made."""
        return np.random.default_rng([self.seed, *keys])

    def state_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "step": self.step, **self._fixed()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in {"kind": self.kind, **self._fixed()}.items():
            if state.get(name) != value:
                advice = "The position in a text only makes sense for the same text and batches."
                check.refuse(name, value, f"{state.get(name)!r}, as when it was saved", advice)
        self.step = check.size("step", state["step"], least=0)

    def _fixed(self) -> dict[str, Any]:
        sizes = {"tokens": len(self.tokens), "batch": self.batch, "length": self.length}
        return {**sizes, "seed": self.seed}


class SequentialBatches(_Batches):
    """Sequential partitioning: B readers, evenly spaced, walk round the text for ever.

    >>> tokens = Tokens(np.arange(10), np.array([0, 10]))
    >>> batches = SequentialBatches(tokens, batch=2, length=3, reset=0)
    >>> next(batches).targets.T.tolist(), next(batches).targets.T.tolist()
    ([[0, 1, 2], [5, 6, 7]], [[3, 4, 5], [8, 9, 0]])

    reset           how probable it is, at each batch, that a reader's state begins anew: without
                    that, a state carried for thousands of steps may run off and never return
    random_lengths  lengths around `length`, sometimes around half of it (AWD-LSTM): else the
                    same tokens would always stand at the end of the gradient
    """

    kind = "sequential"

    def __init__(
        self,
        tokens: Tokens,
        batch: int,
        length: int,
        *,
        reset: float = 0.01,
        random_lengths: bool = False,
        seed: int = 0,
        shard: Shard = Shard(),  # noqa: B008  frozen
    ) -> None:
        super().__init__(tokens, batch, length, seed, shard)
        self.reset = check.probability("reset", reset)
        self.random_lengths = random_lengths
        self.offset = 0

    def __next__(self) -> Batch:
        length = self._length()
        places = self.columns * len(self.tokens) // self.batch + self.offset
        found = make_batch(self.tokens, places, length)
        found.scale = length / self.length
        if self.reset:
            chance = self.random(1, self.step).random(self.batch)[self.columns]
            found.fresh |= torch.from_numpy(chance < self.reset)
        if self.step == 0:
            found.fresh[:] = True
        self.step += 1
        self.offset = (self.offset + length) % len(self.tokens)
        return found

    def _length(self) -> int:
        if not self.random_lengths:
            return self.length
        random = self.random(2, self.step)
        mean = self.length if random.random() < 0.95 else self.length / 2
        return max(5, int(random.normal(mean, 5)))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "offset": self.offset}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.offset = check.size("offset", state["offset"], least=0)


class RandomBatches(_Batches):
    """Random sampling: the text, cut anew for each epoch, its segments in random order.

    No state is carried: each segment begins from nothing.
    """

    kind = "random"

    def __init__(
        self,
        tokens: Tokens,
        batch: int,
        length: int,
        *,
        seed: int = 0,
        shard: Shard = Shard(),  # noqa: B008  frozen
    ) -> None:
        super().__init__(tokens, batch, length, seed, shard)
        self.segments = max(len(tokens) // length - 1, 1)  # one less: the first cut moves

    def __next__(self) -> Batch:
        # Numbered through all epochs, so that the last batch of one begins the next.
        numbers = self.step * self.batch + self.columns
        epochs, within = np.divmod(numbers, self.segments)
        places = np.empty_like(numbers)
        for epoch in np.unique(epochs):
            random = self.random(3, int(epoch))
            first = random.integers(self.length)
            order = shuffled(within[epochs == epoch], self.segments, random)
            places[epochs == epoch] = first + order * self.length
        found = make_batch(self.tokens, places, self.length)
        found.fresh[:] = True
        self.step += 1
        return found


def shuffled(numbers: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Where a random permutation of 0 … count - 1 sends these numbers.

    A Feistel network over the next power of four, walked until it lands below `count`: no table,
    so that a text of any size is shuffled in constant memory.
    """
    half = max((max(count - 1, 1).bit_length() + 1) // 2, 1)
    mask = np.uint64((1 << half) - 1)
    keys = random.integers(1 << 62, size=4, dtype=np.uint64) | np.uint64(1)

    def permute(x: np.ndarray) -> np.ndarray:
        left, right = x >> np.uint64(half), x & mask
        for key in keys:
            mixed = (right + np.uint64(1)) * key
            mixed ^= mixed >> np.uint64(29)
            mixed *= np.uint64(0x9E3779B97F4A7C15)
            left, right = right, left ^ ((mixed >> np.uint64(33)) & mask)
        return (left << np.uint64(half)) | right

    with np.errstate(over="ignore"):
        found = permute(np.asarray(numbers, np.uint64))
        while (beyond := found >= count).any():
            found[beyond] = permute(found[beyond])
    return found.astype(np.int64)
