"""Our parts of a task's batches, with what each carries from one batch to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from metarnn.layers.nested import map_tensors
from metarnn.tasks.task import Shard, Task
from metarnn.training.world import World


class Parts:
    """Batch after batch of each shard; saved for the whole batch, whoever goes on with it.

    for k, (batch, carried) in enumerate(parts):
        parts.carried[k] = task.loss(model, batch, carried).carried
    """

    def __init__(self, task: Task, shards: Sequence[Shard]) -> None:
        self.shards = list(shards)
        self.batches = [task.batches(shard) for shard in shards]
        self.carried: list[Any] = [None] * len(self.shards)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """The next batch of each part, and what was carried to it."""
        for batches, carried in zip(self.batches, self.carried, strict=True):
            yield next(batches), carried

    def state_dict(self, world: World) -> dict[str, Any]:
        parts = [each for theirs in world.gather(self.carried) for each in theirs]
        return {"batches": self.batches[0].state_dict(), "carried": join(parts)}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        for batches in self.batches:
            batches.load_state_dict(state["batches"])
        self.carried = [part(state["carried"], shard, device) for shard in self.shards]


def join(parts: Sequence[Any]) -> Any:
    """What each part of a batch carries over, as of the whole batch: joined along dimension 1."""
    if any(part is None for part in parts):
        return None
    first, *others = parts
    return map_tensors(lambda *each: torch.cat(each, dim=1), first, *others)


def part(carried: Any, shard: Shard, device: torch.device) -> Any:
    """One part's share of what a whole batch carries over."""

    def cut(whole: Tensor) -> Tensor:
        if whole.dim() < 2 or whole.shape[1] % shard.count:
            raise ValueError(
                f"the carried state has the shape {list(whole.shape)}, which cannot be shared by "
                f"{shard.count}; is the batch size that of the checkpoint?"
            )
        return whole.chunk(shard.count, dim=1)[shard.index].to(device, copy=True)

    return map_tensors(cut, carried)
