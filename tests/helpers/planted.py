"""A problem whose answer is known: sequences that a hidden unit made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.layers import Recurrent
from metarnn.search import Genotype, Problem, known
from metarnn.tasks.task import Loss, Shard

INPUTS, OUTPUTS, LENGTH = 3, 4, 20
PARTS = ("weights", "structure", "winner", "test")
NOISE = 0.5


class Answers(nn.Module):
    """y_t = W h_t + b"""

    def __init__(self, unit: Any, width: int, engine: str = "auto") -> None:
        super().__init__()
        self.layer = Recurrent(unit(INPUTS, width), engine=engine)
        self.readout = nn.Linear(self.layer.output_size, OUTPUTS)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        y, state = self.layer(x, state)
        return self.readout(y), state


def make(teacher: Genotype, sequences: int, seed: int) -> tuple[Tensor, Tensor]:
    """x [T, N, I] and what a teacher of width 8 with random weights answers, with noise."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(LENGTH, sequences, INPUTS, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(99)  # one teacher for all parts
        model = Answers(teacher.cell, 8)
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(torch.randn_like(weight) * (1.0 if weight.dim() > 1 else 0.5))
            y = model(x)[0]
    return x, y + NOISE * torch.randn(y.shape, generator=generator)


class Batches:
    def __init__(self, data: tuple[Tensor, Tensor], batch: int, shard: Shard) -> None:
        self.data, self.batch, self.shard, self.step = data, batch, shard, 0

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        x, y = self.data
        columns = (self.step * self.batch + torch.arange(self.batch)) % x.shape[1]
        columns = columns.chunk(self.shard.count)[self.shard.index]
        self.step += 1
        return x[:, columns], y[:, columns]

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]


@dataclass
class Planted:
    """Trains on one part; "valid" is the next one."""

    parts: dict[str, tuple[Tensor, Tensor]]
    trains_on: str
    batch: int = 16

    def batches(self, shard: Shard) -> Batches:
        return Batches(self.parts[self.trains_on], self.batch, shard)

    def loss(self, model: nn.Module, batch: Any, carried: Any = None) -> Loss:
        x, y = batch
        like = next(model.parameters())
        value = (model(x.to(like))[0] - y.to(like)).square().mean()
        return Loss(value, y.numel())

    def evaluate(self, model: nn.Module, split: str = "valid") -> dict[str, float]:
        names = list(self.parts)
        wanted = names[names.index(self.trains_on) + 1] if split == "valid" else split
        with torch.no_grad():
            return {"mse": self.loss(model, self.parts[wanted]).value.item()}


def problem(teacher: Genotype = known.GRU, sequences: int = 64) -> Problem:
    parts = {name: make(teacher, sequences, seed) for seed, name in enumerate(PARTS)}
    whole = {name: parts[name] for name in ("structure", "winner", "test")}
    both = [torch.cat(pair, 1) for pair in zip(parts["weights"], parts["structure"], strict=True)]
    whole["structure"] = (both[0], both[1])
    return Problem(
        Planted(parts, "weights"), Planted(parts, "structure"), Planted(whole, "structure"), Answers
    )


def eager() -> Problem:
    """A small one, for processes that would compile more than they train."""
    return replace(problem(sequences=32), model=partial(Answers, engine="eager"))
