"""A small language model with all that makes training hard: carried state, dropout, random data."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from metarnn.layers import LSTM
from metarnn.tasks.task import Loss, Shard
from metarnn.training import Folder, Result, Settings, Trainer, checkpoint
from metarnn.training import world as worlds

SYMBOLS = 7


class ToyModel(nn.Module):
    def __init__(self, width: int = 8, dropout: float = 0.2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, width)
        self.layer = LSTM(width, width)
        self.dropout = nn.Dropout(dropout)
        self.readout = nn.Linear(width, SYMBOLS)
        self.readout.weight = self.embedding.weight  # tied

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        y, state = self.layer(self.dropout(self.embedding(x)), state)
        return self.readout(self.dropout(y)), state


class ToyBatches:
    """Noisy counting: readers at different places of an endless text."""

    def __init__(self, batch: int, shard: Shard, seed: int = 0) -> None:
        self.batch, self.shard, self.step, self.seed = batch, shard, 0, seed

    def __iter__(self) -> ToyBatches:
        return self

    def __next__(self) -> tuple[Tensor, Tensor, int]:
        draw = torch.Generator().manual_seed(1000 * self.seed + self.step)
        noise = (torch.rand(6, self.batch, generator=draw) < 0.1).long()
        begin = 5 * self.step + torch.arange(self.batch)
        text = (torch.arange(6).unsqueeze(1) + begin + noise) % SYMBOLS
        text = text.chunk(self.shard.count, 1)[self.shard.index]
        self.step += 1
        return text[:-1], text[1:], self.step - 1

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]


@dataclass
class ToyTask:
    """`signals` are sent to this process: {step: signal}, at "valid" during validation."""

    batch: int = 8
    batches_per_epoch: float = 10.0
    signals: dict[Any, int] = field(default_factory=dict)

    def batches(self, shard: Shard) -> ToyBatches:
        return ToyBatches(self.batch, shard)

    def loss(self, model: nn.Module, batch: Any, carried: Any = None) -> Loss:
        x, y, step = batch
        self._signal(step)
        logits, state = model(x, carried)
        nll = cross_entropy(logits.flatten(0, 1), y.flatten())
        carried = tuple(part.detach() for part in state)
        return Loss(nll, y.numel(), {"nll": nll.detach()}, carried)

    def evaluate(self, model: nn.Module, split: str = "valid") -> dict[str, float]:
        self._signal("valid")
        # Drawn from where the training draws: an evaluation must leave no trace there.
        torch.rand(3)
        x, y, _ = next(ToyBatches(16, Shard(), seed=5))
        logits, _ = model(x)
        return {"nll": cross_entropy(logits.flatten(0, 1), y.flatten()).item()}

    def _signal(self, when: Any) -> None:
        if when in self.signals:
            os.kill(os.getpid(), self.signals.pop(when))


QUICK = Settings(batch=8, lr=0.02, validate_every=10, save_every=5, log_every=3, steps=40)


def train(
    out: Any = None,
    settings: Settings = QUICK,
    *,
    resume: bool = False,
    signals: dict[Any, int] | None = None,
    task: Any = None,
    **options: Any,
) -> tuple[Trainer, Result]:
    """A toy model trained as the settings say, in a run folder if one is given."""
    torch.manual_seed(settings.seed)
    model = ToyModel(**options)
    task = task or ToyTask(settings.batch, signals=signals or {})
    folder = None if out is None else Folder(out)
    with worlds.joined("cpu") as world:
        writes = folder is not None and world.is_first
        with folder.locked(resume=resume) if folder and writes else nullcontext():
            trainer = Trainer(task, model, settings, folder=folder, world=world)
            if resume:
                trainer.resume()
            return trainer, trainer.fit()


def same(one: Any, other: Any) -> bool:
    """Bit for bit the same last checkpoint and best weights in two run folders."""
    ours, theirs = (checkpoint.load(Folder(out).last) for out in (one, other))
    for state in (ours, theirs):
        del state["metrics"], state["position"]["elapsed"]
    best = (checkpoint.read_weights(Folder(out).model) for out in (one, other))
    return equal(ours, theirs) and equal(*best)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


if __name__ == "__main__":  # python -m tests.helpers.toy OUT STEPS [resume] [plain]
    out, steps, *more = sys.argv[1:]
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    options: dict[str, Any] = {"dropout": 0.0} if "plain" in more else {}
    again = "resume" in more or restarted
    _, result = train(out, replace(QUICK, steps=int(steps)), resume=again, **options)
    sys.exit(128 + result.signal if result.signal else 0)
