"""Families of tasks: from which episodes are drawn, and the networks that suit them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Generator, Tensor, nn

from metarnn.cells import cell, check
from metarnn.graph.files import text
from metarnn.hyper import Metadata
from metarnn.layers import Recurrent
from metarnn.meta import Episode

SPLITS = ("train", "valid", "test")


class Family(Protocol):
    """criterion  "mse" or "cross_entropy"
    inputs     numbers of an x at a time (a step of a sequence; all of it where x is none)
    outputs    numbers of a prediction, or classes
    """

    criterion: str

    @property
    def inputs(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    def draw(self, split: str, tasks: int, shots: int, queries: int, random: Generator) -> Episode:
        """Episodes of so many tasks of a split; those of two splits have no task in common."""
        ...

    def network(self, hidden: int, kind: str) -> nn.Module:
        """A network for its tasks whose last part is called `head`; `kind` is that of a cell."""
        ...

    def reads(self, hidden: int, kind: str) -> tuple[nn.Module | None, int]:
        """What makes a vector of an x, None where x is one, and how many numbers that has."""
        ...

    def metadata(self) -> Metadata | None:
        """The descriptor for `episode.about`, where there is such a thing."""
        ...

    def known(self, path: Path) -> tuple[Tensor, Tensor]:
        """The support of one task from a file or folder, [K, …] each."""
        ...

    def asked(self, path: Path) -> tuple[Tensor, Tensor | None]:
        """Queries from a file or folder, [Q, …], and their y where that is there."""
        ...

    def shown(self, prediction: Tensor, support: Path) -> list[str]:
        """Predictions for queries, [Q, …], as lines for a person; `support` as `known` read it."""
        ...

    def state(self) -> dict[str, Any]:
        """What `known` and `asked` need of the data it was made of, as JSON."""
        ...


class Perceptron(nn.Module):
    """inputs - hidden - hidden - outputs, with ReLUs."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class SequenceNet(nn.Module):
    """A recurrent network over sequences [K, T, inputs] and a linear head.

    shape   of a prediction, read off the last step
    every   one at each step instead
    tokens  x are numbers of tokens, [K, T], of which there are so many
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        shape: tuple[int, ...],
        kind: str = "lstm",
        *,
        every: bool = False,
        tokens: bool = False,
    ) -> None:
        super().__init__()
        self.shape, self.every, self.tokens = shape, every, inputs if tokens else 0
        self.embedding = nn.Embedding(inputs, hidden) if tokens else None
        unit = cell(kind, hidden if tokens else inputs, check.size("hidden", hidden))
        self.body = Recurrent(unit, batch_first=True)
        self.head = nn.Linear(self.body.output_size, int(torch.Size(shape).numel()))

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.embedding is None else self.embedding(x)
        y = self.body(x)[0]
        y = self.head(y if self.every else y[:, -1])
        return y.unflatten(-1, self.shape)


class Reader(nn.Module):
    """A sequence as the last output of a recurrent network, [M, T, inputs] -> [M, hidden]."""

    def __init__(self, inputs: int, hidden: int, kind: str) -> None:
        super().__init__()
        self.body = Recurrent(cell(kind, inputs, hidden), batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)[0][:, -1]


def table(path: Path, columns: int | None = None) -> Tensor:
    """The numbers of a CSV file, [rows, columns]; a first line of names is passed over."""
    rows: list[list[float]] = []
    for number, line in enumerate(text(path).splitlines(), 1):
        if not line.strip():
            continue
        cells = line.replace(";", ",").replace("\t", ",").split(",")
        cells = line.split() if len(cells) == 1 else cells
        try:
            rows.append([float(value) for value in cells])
        except ValueError:
            if number == 1:
                continue
            raise ValueError(
                f"{path}:{number}: {line.strip()[:60]!r} is no row of numbers"
            ) from None
        if len(rows[-1]) != (columns or len(rows[0])):
            found, expected = len(rows[-1]), columns or len(rows[0])
            raise ValueError(f"{path}:{number}: {found} numbers, expected {expected}")
    if not rows:
        raise ValueError(f"{path} has no rows of numbers")
    found = torch.tensor(rows)
    if not found.isfinite().all():
        raise ValueError(f"{path} has numbers that are NaN or infinite")
    return found


def line(numbers: Tensor) -> str:
    """A row of a CSV file."""
    return ",".join(f"{value:.6g}" for value in numbers.flatten().tolist())
