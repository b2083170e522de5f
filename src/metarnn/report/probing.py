"""How far back gradients get in a trained model, on its own data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.gradients.reach import Reach, reach
from metarnn.layers import Recurrent
from metarnn.report.reading import Reading
from metarnn.runs.tasks import Job, Run, open_run
from metarnn.tasks.task import Shard
from metarnn.training.progress import Progress


class Probe(nn.Module):
    """A layer whose loss at each step is a random direction of its output."""

    def __init__(self, layer: Recurrent, seed: int = 0) -> None:
        super().__init__()
        self.layer = layer
        source = torch.Generator().manual_seed(seed)
        direction = torch.randn(layer.output_size, generator=source)
        self.register_buffer("direction", direction / direction.norm())

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.layer(x, state)
        return (y @ self.direction).sum(), state


def opened(run: Path, length: int, batch: int, show: Progress) -> tuple[Run[Any], Job[Any]]:
    """A run whose batches have this size, on the CPU."""
    own = open_run(run)
    keys = own.config
    changes: dict[str, Any] = {"batch": batch, "accumulate": 1, "device": "cpu"}
    if own.entry.name == "lm":  # elsewhere a length is one of the data
        changes["length"] = length
    if getattr(keys, "online", False):
        changes["online"] = False
    found = open_run(run, **changes)
    return found, found.prepare(show)


def of_model(job: Job[Any], model: nn.Module, length: int) -> Reach:
    """The reach of a model on the first batch of a task whose loss is a sum over time."""

    def loss(model: nn.Module, batch: Any, state: Any) -> tuple[Tensor, Any]:
        cost = job.task.loss(model, batch, state)
        return cost.value * cost.count, cost.state

    chunk = next(iter(job.task.batches(Shard())))
    return reach(model, chunk, lags=length // 2, loss=loss, split=job.task.split)


def of_layer(call: Reading, length: int) -> Reach:
    """The reach of a layer on what it read, where the loss is no sum over time: that of a random
    direction of its output at each step."""
    x = call.x[:length]
    return reach(Probe(forwards(call.layer)), x, lags=min(length, len(x)) // 2)


def forwards(layer: Recurrent) -> Recurrent:
    """A layer that reads [T, B, I] forwards; of one in two directions the lowest."""
    return layer.forwards() if layer.bidirectional or layer.batch_first else layer
