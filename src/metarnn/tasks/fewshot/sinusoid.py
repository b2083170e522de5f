"""Sinusoids (Finn et al. 2017): y = A sin(x - φ), A ~ U[0.1, 5], φ ~ U[0, π], x ~ U[-5, 5]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from metarnn.hyper import Metadata
from metarnn.meta import Episode
from metarnn.tasks.fewshot.family import Perceptron, line, table


@dataclass(frozen=True)
class Sinusoids:
    """
    >>> episode = Sinusoids().draw("train", 25, 10, 10, torch.Generator().manual_seed(0))
    >>> episode.x.shape, sorted(episode.about)
    (torch.Size([25, 10, 1]), ['amplitude', 'phase'])
    """

    inputs = outputs = 1
    criterion = "mse"

    def draw(self, split: str, tasks: int, shots: int, queries: int, random: Generator) -> Episode:
        """Every task is new: those of two splits are different ones."""
        u = torch.rand(tasks, 2 + shots + queries, generator=random)
        amplitude, phase = 0.1 + 4.9 * u[:, 0], math.pi * u[:, 1]
        x = (10 * u[:, 2:] - 5).unsqueeze(-1)
        y = amplitude.view(-1, 1, 1) * torch.sin(x - phase.view(-1, 1, 1))
        about = {"amplitude": amplitude, "phase": phase}
        return Episode(x[:, :shots], y[:, :shots], x[:, shots:], y[:, shots:], about)

    def network(self, hidden: int, kind: str) -> nn.Module:
        return Perceptron(1, hidden, 1)

    def reads(self, hidden: int, kind: str) -> tuple[None, int]:
        return None, 1

    def metadata(self) -> Metadata:
        amplitude, phase = (2.55, 4.9 / math.sqrt(12)), (math.pi / 2, math.pi / math.sqrt(12))
        return Metadata({"amplitude": amplitude, "phase": phase})

    def known(self, path: Path) -> tuple[Tensor, Tensor]:
        """Rows of x and y."""
        found = table(path, 2)
        return found[:, :1], found[:, 1:]

    def asked(self, path: Path) -> tuple[Tensor, Tensor | None]:
        """Rows of x, or of x and y."""
        found = table(path)
        return found[:, :1], found[:, 1:2] if found.shape[1] > 1 else None

    def shown(self, prediction: Tensor, support: Path) -> list[str]:
        return [line(y) for y in prediction]

    def state(self) -> dict[str, Any]:
        return {}
