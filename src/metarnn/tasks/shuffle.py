"""Batches of examples in random order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

import numpy as np

from metarnn.cells import check
from metarnn.tasks.language.batches import shuffled
from metarnn.tasks.task import Shard

B = TypeVar("B")


class ShuffledBatches(Generic[B]):
    """All examples in an order of chance, then all in another, for ever.

    >>> batches = ShuffledBatches(3, 2, lambda numbers: numbers.tolist())
    >>> sorted(next(batches) + next(batches) + next(batches))
    [0, 0, 1, 1, 2, 2]

    A batch may end one epoch and begin the next, so it may be larger than the examples are many.
    The order follows from the seed and the epoch alone: the position is one number.

    count    how many examples there are
    collate  makes a batch of the examples with these numbers
    """

    def __init__(
        self,
        count: int,
        batch: int,
        collate: Callable[[np.ndarray], B],
        *,
        seed: int = 0,
        shard: Shard = Shard(),  # noqa: B008  frozen
    ) -> None:
        self.count, self.batch = check.size("examples", count), check.size("batch", batch)
        if batch % shard.count:
            check.refuse("batch", batch, f"a multiple of the {shard.count} processes")
        self.collate, self.seed, self.step = collate, seed, 0
        mine = batch // shard.count
        self.columns = np.arange(shard.index * mine, (shard.index + 1) * mine)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> B:
        epochs, within = np.divmod(self.step * self.batch + self.columns, self.count)
        chosen = np.empty_like(within)
        for epoch in np.unique(epochs):
            random = np.random.default_rng([self.seed, int(epoch)])
            chosen[epochs == epoch] = shuffled(within[epochs == epoch], self.count, random)
        self.step += 1
        return self.collate(chosen)

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, **self._fixed()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in self._fixed().items():
            if state.get(name) != value:
                advice = "The position only makes sense for the same data and batches."
                check.refuse(name, value, f"{state.get(name)!r}, as when it was saved", advice)
        self.step = check.size("step", state["step"], least=0)

    def _fixed(self) -> dict[str, Any]:
        return {"examples": self.count, "batch": self.batch, "seed": self.seed}
