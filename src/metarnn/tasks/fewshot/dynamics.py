"""Families of dynamical systems with drawn parameters: forecast from a short history."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from metarnn.cells import check
from metarnn.hyper import Metadata
from metarnn.meta import Episode
from metarnn.tasks.fewshot.family import SPLITS, SequenceNet, line, table
from metarnn.tasks.synthetic import systems

Columns = Mapping[str, Tensor]


@dataclass(frozen=True)
class System:
    """ranges   of each parameter; the first one's is shared out among the splits
    width    numbers of a state that are seen
    scale    (mean, spread) that they are brought to 0 and 1 with, the same for all tasks
    apart    time from one observation to the next; `substeps` of the solver lie between
    simulate (system, parameters [count] each, settle, length, random) -> [count, length, width],
             from starts drawn at random, after `settle` observations that are not kept
    """

    ranges: Mapping[str, tuple[float, float]]
    width: int
    scale: tuple[float, float]
    apart: float
    substeps: int
    simulate: Callable[[System, Columns, int, int, Generator], Tensor]


def _flow(
    equations: Callable[..., tuple[Tensor, ...]], centre: tuple[float, ...], spread: float
) -> Any:
    """Starts are normal, about a centre: as wide as the attractors are."""

    def simulate(system: System, p: Columns, settle: int, length: int, random: Generator) -> Tensor:
        count = len(next(iter(p.values())))
        start = torch.randn(count, len(centre), generator=random, dtype=torch.float64)
        start = spread * start + torch.tensor(centre, dtype=torch.float64)

        def field(s: Tensor) -> Tensor:
            return torch.stack(equations(*s.unbind(-1), **p), -1)

        s, found = start, [start]
        for _ in range(settle + length - 1):
            for _ in range(system.substeps):
                s = systems.runge_kutta(field, s, system.apart / system.substeps)
            found.append(s)
        return torch.stack(found[settle:], 1)

    return simulate


def _mackey_glass(
    system: System, p: Columns, settle: int, length: int, random: Generator
) -> Tensor:
    """By Heun's method, on a grid that τ is rounded to."""
    count, dt = len(p["tau"]), system.apart / system.substeps
    delay = (p["tau"] / dt).round().long()
    past = int(delay.max())
    steps = (settle + length - 1) * system.substeps
    x = torch.zeros(count, past + 1 + steps, dtype=torch.float64)
    x[:, : past + 1] = 0.8 + 0.4 * torch.rand(count, 1, generator=random, dtype=torch.float64)
    rows = torch.arange(count)

    def slope(now: Tensor, late: Tensor) -> Tensor:
        return systems.mackey_glass(late, b=p["b"]) - p["c"] * now

    for t in range(past, past + steps):
        now = x[:, t]
        k1 = slope(now, x[rows, t - delay])
        k2 = slope(now + dt * k1, x[rows, t + 1 - delay])
        x[:, t + 1] = now + dt / 2 * (k1 + k2)
    return x[:, past :: system.substeps][:, settle:].unsqueeze(-1)


SETTLE = 40  # observations before the first one kept: the way to the attractor is passed over
FRESH = 40  # trajectories of a task where each example is one of its own, half of them for support
BINS = 20  # parts of the first parameter's range, of 5 in a row one is for valid, one for test

SYSTEMS = {
    "lorenz": System(
        {"rho": (25.0, 60.0), "sigma": (8.0, 12.0), "beta": (2.0, 3.3)},
        3,
        (10.0, 15.0),
        0.05,
        5,
        _flow(systems.lorenz, (0.0, 0.0, 25.0), 10.0),
    ),
    "vanderpol": System(
        {"mu": (0.2, 4.0), "k": (0.3, 4.0)},
        2,
        (0.0, 2.0),
        0.25,
        16,
        _flow(systems.van_der_pol, (0.0, 0.0), 1.0),
    ),
    "mackeyglass": System(
        {"tau": (12.0, 30.0), "b": (0.18, 0.24), "c": (0.09, 0.12)},
        1,
        (0.9, 0.25),
        3.0,
        6,
        _mackey_glass,
    ),
}


def parameters(system: System, split: str, count: int, random: Generator) -> dict[str, Tensor]:
    """Parameters of tasks, [count] each; no two splits share a part of the first one's range."""
    check.one_of("split", split, SPLITS)
    places = {"train": (0, 1, 3), "valid": (2,), "test": (4,)}[split]
    bins = torch.tensor([k for k in range(BINS) if k % 5 in places])
    found = {}
    for k, (name, (low, high)) in enumerate(system.ranges.items()):
        u = torch.rand(count, generator=random, dtype=torch.float64)
        if k == 0:
            chosen = bins[torch.randint(len(bins), (count,), generator=random)]
            u = (chosen + u) / BINS
        found[name] = low + (high - low) * u
    return found


@cache
def _orbits(
    name: str, split: str, count: int, each: int, settle: int, length: int, seed: int
) -> tuple[dict[str, Tensor], Tensor]:
    """Tasks of a split, made once: parameters and trajectories, [count, each, length, width]."""
    system = SYSTEMS[name]
    random = torch.Generator().manual_seed(1000 * seed + SPLITS.index(split))
    p = parameters(system, split, count, random)
    mean, spread = system.scale
    repeated = {n: v.repeat_interleave(each) for n, v in p.items()}
    found = (system.simulate(system, repeated, settle, length, random) - mean) / spread
    if not found.isfinite().all():
        check.refuse("system", name, "trajectories that stay finite")
    orbits: Tensor = found.float().unflatten(0, (count, each))
    return {n: v.float() for n, v in p.items()}, orbits


@dataclass(frozen=True)
class Dynamics:
    """x is a history of a trajectory, [history, width], y what follows, [horizon, width].

    system   "lorenz", "vanderpol" or "mackeyglass"
    noise    standard deviation of what is added to a history: parameters that could be told from an
             exact one then take examples to be known
    fresh    every example is a trajectory of its own, from a start drawn at random; else all are
             pieces of one that has come to its attractor, where a state tells of the parameters
    pools    how many tasks the splits have
    length   observations of a trajectory that examples are pieces of
    """

    system: str = "vanderpol"
    history: int = 4
    horizon: int = 8
    noise: float = 0.0
    fresh: bool = False
    pools: tuple[int, int, int] = (1000, 200, 600)
    length: int = 200
    seed: int = 0
    criterion = "mse"

    def __post_init__(self) -> None:
        check.one_of("system", self.system, SYSTEMS)
        check.size("history", self.history)
        check.size("horizon", self.horizon)
        if check.number("noise", self.noise) < 0:
            check.refuse("noise", self.noise, "a number not below 0")
        least = 2 * (self.history + self.horizon + 1)
        check.size("length", self.length, least=least)

    @property
    def inputs(self) -> int:
        return SYSTEMS[self.system].width

    @property
    def outputs(self) -> int:
        return self.horizon * self.inputs

    def draw(self, split: str, tasks: int, shots: int, queries: int, random: Generator) -> Episode:
        count = self.pools[SPLITS.index(check.one_of("split", split, SPLITS))]
        which = torch.randint(count, (tasks,), generator=random)
        if tasks <= count and split != "train":
            which = torch.randperm(count, generator=random)[:tasks]
        window = self.history + self.horizon
        if self.fresh:
            about, orbits = _orbits(self.system, split, count, FRESH, 0, window, self.seed)
        else:
            about, orbits = _orbits(self.system, split, count, 1, SETTLE, self.length, self.seed)
        parts = []
        for half, size in enumerate((shots, queries)):
            found = self._examples(orbits[which], half, size, random)
            history = found[:, :, : self.history]
            if self.noise:
                history = history + self.noise * torch.randn(history.shape, generator=random)
            parts += [history, found[:, :, self.history :]]
        x, y, query_x, query_y = parts
        known = {name: value[which] for name, value in about.items()}
        return Episode(x, y, query_x, query_y, known)

    def _examples(self, orbits: Tensor, half: int, size: int, random: Generator) -> Tensor:
        """Windows of each task's trajectories, [tasks, size, window, width].

        Support and query come from two halves, of the trajectories or of one: they never overlap.
        """
        tasks, each, length, _ = orbits.shape
        rows = torch.arange(tasks).view(-1, 1, 1)
        window = torch.arange(self.history + self.horizon)
        if self.fresh:
            if size > each // 2:
                check.refuse("shots or queries", size, f"at most {each // 2} with fresh=True")
            order = torch.rand(tasks, each // 2, generator=random).argsort(1)[:, :size]
            return orbits[rows, half * (each // 2) + order.unsqueeze(-1), window]
        at = torch.randint(length // 2 - len(window), (tasks, size, 1), generator=random)
        return orbits[rows, 0, half * (length // 2) + at + window]

    def network(self, hidden: int, kind: str) -> nn.Module:
        return SequenceNet(self.inputs, hidden, (self.horizon, self.inputs), kind)

    def reads(self, hidden: int, kind: str) -> tuple[None, int]:
        return None, self.history * self.inputs

    def metadata(self) -> Metadata:
        """Of numbers spread evenly over their ranges."""
        found = {}
        for name, (low, high) in SYSTEMS[self.system].ranges.items():
            found[name] = ((low + high) / 2, (high - low) / math.sqrt(12))
        return Metadata(found)

    def known(self, path: Path) -> tuple[Tensor, Tensor]:
        """All windows of one trajectory: a row of the file is an observation, in its own units."""
        x = self._read(path)
        window = self.history + self.horizon
        if len(x) < window:
            raise ValueError(f"{path} has {len(x)} rows: expected at least {window}")
        every = x.unfold(0, window, 1).transpose(1, 2)
        return every[:, : self.history], every[:, self.history :]

    def asked(self, path: Path) -> tuple[Tensor, Tensor | None]:
        """The last rows of a trajectory, to go on from."""
        x = self._read(path)
        if len(x) < self.history:
            raise ValueError(f"{path} has {len(x)} rows: expected at least {self.history}")
        return x[-self.history :].unsqueeze(0), None

    def _read(self, path: Path) -> Tensor:
        mean, spread = SYSTEMS[self.system].scale
        return (table(path, self.inputs) - mean) / spread

    def shown(self, prediction: Tensor, support: Path) -> list[str]:
        """Observations in their own units, one a line."""
        mean, spread = SYSTEMS[self.system].scale
        return [line(row * spread + mean) for forecast in prediction for row in forecast]

    def state(self) -> dict[str, Any]:
        return {}
