"""Batches of pairs whose lengths are alike: little padding, and in another order each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.tasks.language.vocabulary import BOS, EOS, PAD
from metarnn.tasks.task import Shard
from metarnn.tasks.translation.corpus import Split

POOL = 50  # batches among which sentences are put in the order of their lengths


@dataclass(frozen=True)
class Batch:
    """Pairs, time first, padded with `<pad>`.

    source   [S, B], each ends with `<eos>`
    lengths  [B], `<eos>` counted; it stays on the CPU, where layers look at it
    inputs   [T, B], each begins with `<bos>`
    targets  [n], what follows each input, of all sentences, without padding
    places   [n], where in [T, B], read row by row, each target belongs
    step     the number of the batch
    """

    source: Tensor
    lengths: Tensor
    inputs: Tensor
    targets: Tensor
    places: Tensor
    step: int = 0

    def to(self, device: torch.device | str) -> Batch:
        names = ("source", "inputs", "targets", "places")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def make_batch(
    sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], step: int = 0
) -> Batch:
    """
    >>> make_batch([np.array([7, 8]), np.array([9])], [np.array([5]), np.array([6, 4])]).inputs
    tensor([[2, 2],
            [5, 6],
            [1, 4]])
    """
    source, lengths = _padded([np.append(x, EOS) for x in sources])
    inputs, sizes = _padded([np.append([BOS], y) for y in targets])
    following, _ = _padded([np.append(y, EOS) for y in targets])
    places = np.flatnonzero(np.arange(len(inputs))[:, None] < sizes)
    arrays = (source, lengths, inputs, following.ravel()[places], places)
    return Batch(*map(torch.from_numpy, arrays), step=step)


def _padded(sentences: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    found = np.full((lengths.max(), len(sentences)), PAD, np.int64)
    for column, sentence in enumerate(sentences):
        found[: len(sentence), column] = sentence
    return found, lengths


class BucketedBatches:
    """Batches without end. In every epoch pairs come in random order; among `POOL` batches they are
    sorted by length, and the batches shuffled. Of an epoch's pairs, fewer than a batch are left
    out, others each time.
    """

    def __init__(
        self,
        split: Split,
        batch: int,
        *,
        seed: int = 0,
        shard: Shard = Shard(),  # noqa: B008  frozen
    ) -> None:
        check.size("batch", batch)
        if batch % shard.count:
            check.refuse("batch", batch, f"a multiple of the {shard.count} processes")
        if len(split) < batch:
            check.refuse("batch", batch, f"at most the {len(split)} pairs there are")
        self.split, self.batch, self.seed, self.shard = split, batch, seed, shard
        sizes = [[len(x) for x in side] for side in (split.source, split.target)]
        self.lengths = np.array(sizes)
        self.step = 0
        self._epoch: tuple[int, np.ndarray] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        epoch, k = divmod(self.step, len(self.split) // self.batch)
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = epoch, self._order(epoch)
        # Every k-th pair: parts of a batch then have about the same lengths.
        mine = self._epoch[1][k][self.shard.index :: self.shard.count]
        found = make_batch(
            [self.split.source[n] for n in mine], [self.split.target[n] for n in mine], self.step
        )
        self.step += 1
        return found

    def _order(self, epoch: int) -> np.ndarray:
        """[batches, batch], the pairs of each batch of an epoch."""
        random = np.random.default_rng([self.seed, 4, epoch])
        whole = len(self.split) // self.batch * self.batch
        order = random.permutation(len(self.split))[:whole]
        pools = []
        for pool in np.split(order, range(POOL * self.batch, whole, POOL * self.batch)):
            source, target = self.lengths[:, pool]
            pools.append(pool[np.lexsort((target, source + target))])
        return random.permutation(np.concatenate(pools).reshape(-1, self.batch))

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, **self._fixed()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in self._fixed().items():
            if state.get(name) != value:
                check.refuse(name, value, f"{state.get(name)!r}, as when it was saved")
        self.step = check.size("step", state["step"], least=0)

    def _fixed(self) -> dict[str, Any]:
        return {"pairs": len(self.split), "batch": self.batch, "seed": self.seed}
