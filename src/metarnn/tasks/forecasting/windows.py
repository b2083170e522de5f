"""Stretches of series: what was seen, what followed, and which of them belong to which split."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.tasks.forecasting.dates import Frequency
from metarnn.tasks.forecasting.series import Panel, held, period
from metarnn.tasks.split import spread

SPLITS = ("train", "valid", "test")
DAYS_A_MONTH = 30  # as the field counts the months of the ETT data
LONGEST = 10**6  # steps that a model may see, or forecast
LONGEST_STEP = 10**10  # seconds


@dataclass
class Window:
    """Stretches side by side, in scaled numbers, time first.

    x         [L, B, C], what was seen, without holes
    y         [H, B, C], what followed; NaN where that is missing
    known     [L + H, B, K], observed [L, B, P]
    series    [B], whose they are
    """

    x: Tensor
    y: Tensor
    known: Tensor
    observed: Tensor
    series: Tensor

    def to(self, device: torch.device | str) -> Window:
        parts = (self.x, self.y, self.known, self.observed, self.series)
        return Window(*(part.to(device) for part in parts))


@dataclass(frozen=True)
class Scheme:
    """What a model must know of its data, learned from their training part alone.

    names, channels    of the series, and of what each has
    mean, std          [N][C] of the training part of each: numbers are scaled by these
    static             [N][S], what is said of each series
    known, observed    how many of them there are
    lookback, horizon  steps seen and forecast
    season             steps of a season
    seconds, months    of a step
    known_mean, known_std, observed_mean, observed_std  of the training part, over all series
    """

    names: tuple[str, ...]
    channels: tuple[str, ...]
    mean: tuple[tuple[float, ...], ...]
    std: tuple[tuple[float, ...], ...]
    lookback: int
    horizon: int
    static: tuple[tuple[float, ...], ...] = ()
    known: int = 0
    observed: int = 0
    season: int = 1
    seconds: int = 0
    months: int = 0
    known_mean: tuple[float, ...] = ()
    known_std: tuple[float, ...] = ()
    observed_mean: tuple[float, ...] = ()
    observed_std: tuple[float, ...] = ()

    @property
    def frequency(self) -> Frequency:
        return Frequency(self.seconds, self.months)

    def validate(self) -> None:
        """Refuse what no data could have given: a file may say anything."""
        shape = (len(self.names), len(self.channels))
        for name in ("mean", "std"):
            found = getattr(self, name)
            if (len(found), *{len(row) for row in found}) != shape or not _finite(found):
                check.refuse(name, found, f"{shape[0]} lists of {shape[1]} numbers")
        for kind in ("known", "observed"):
            for name in (f"{kind}_mean", f"{kind}_std"):
                if len(getattr(self, name)) != getattr(self, kind):
                    check.refuse(name, getattr(self, name), f"{getattr(self, kind)} numbers")
        covariates = (self.known_mean, self.observed_mean, self.known_std, self.observed_std)
        if not _finite(covariates):
            check.refuse("known_mean, observed_mean", covariates, "finite numbers")
        if any(each <= 0 for row in (*self.std, *covariates[2:]) for each in row):
            check.refuse("std", self.std, "numbers above 0")
        if self.static and (len(self.static) != shape[0] or not _finite(self.static)):
            check.refuse("static", self.static, f"{shape[0]} lists of numbers")
        for name in ("lookback", "horizon", "season"):
            check.size(name, getattr(self, name), 1, LONGEST)
        for name in ("known", "observed", "seconds", "months"):
            check.size(name, getattr(self, name), 0, LONGEST_STEP)


def _finite(rows: Sequence[Sequence[float]]) -> bool:
    return all(math.isfinite(each) for row in rows for each in row)


def borders(length: int, split: str, frequency: Frequency) -> dict[str, tuple[int, int]]:
    """First and last step (not included) of each split.

    "70/10/20" are shares, "8640/2880/2880" steps, "12m/4m/4m" months of 30 days.

    >>> borders(100, "70/10/20", Frequency())
    {'train': (0, 70), 'valid': (70, 80), 'test': (80, 100)}
    """
    if split == "all":
        why = "Scores such as MASE are relative to the part before, which train is."
        check.refuse("split", split, "train, valid or test of a series", why)
    match = re.fullmatch(r"([\d.]+)(m?)/([\d.]+)(m?)/([\d.]+)(m?)", split.strip())
    if match is None:
        check.refuse("split", split, "three parts, as in 70/10/20, 8640/2880/2880 or 12m/4m/4m")
    numbers = [float(match[k]) for k in (1, 3, 5)]
    if match[2]:
        if not frequency.seconds and not frequency.months:
            check.refuse("split", split, "shares or steps: these data have no dates")
        steps = frequency.months or frequency.seconds / (86400 * DAYS_A_MONTH)
        sizes = [round(n / steps) for n in numbers]
    elif sum(numbers) == 100:
        first, second = round(length * numbers[0] / 100), round(length * numbers[2] / 100)
        sizes = [first, length - first - second, second]
    else:
        sizes = [int(n) for n in numbers]
    if sum(sizes) > length or min(sizes) < 0 or not sizes[0]:
        check.refuse("split", split, f"at most the {length:,} steps of the series")
    ends = np.cumsum([0, *sizes]).tolist()
    return {name: (ends[k], ends[k + 1]) for k, name in enumerate(SPLITS)}


class Windows:
    """All windows of a panel: `at` makes some of them, `numbers` tells those of a split.

    A window belongs to the split in which all of its targets are; what it has seen may lie before.
    """

    def __init__(self, panel: Panel, scheme: Scheme, split: str = "70/10/20") -> None:
        self.panel, self.scheme = panel, scheme
        lengths = [len(s) for s in panel.series]
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        self.parts = [borders(n, split, panel.frequency) for n in lengths]
        mean, std = np.array(scheme.mean), np.array(scheme.std)
        scaled = [(s.values - mean[k]) / std[k] for k, s in enumerate(panel.series)]
        self.target = torch.from_numpy(np.concatenate(scaled)).float()
        self.seen = torch.from_numpy(np.concatenate([held(x) for x in scaled])).float()
        known = [s.known[: len(s)] for s in panel.series]
        self.known = _covariates(known, scheme.known_mean, scheme.known_std)
        observed = [s.observed for s in panel.series]
        self.observed = _covariates(observed, scheme.observed_mean, scheme.observed_std)

    @cached_property
    def _origins(self) -> dict[str, np.ndarray]:
        """Rows (series, first step forecast) of each split."""
        found: dict[str, list[np.ndarray]] = {name: [] for name in SPLITS}
        for k, parts in enumerate(self.parts):
            for name, (start, end) in parts.items():
                first = max(start, self.scheme.lookback)
                origins = np.arange(first, end - self.scheme.horizon + 1)
                found[name].append(np.stack([np.full_like(origins, k), origins], 1))
        return {name: np.concatenate(rows) for name, rows in found.items()}

    def origins(self, split: str, stride: int = 1) -> np.ndarray:
        """[n, 2], the series and the first step forecast of the windows of a split."""
        rows = self._origins[check.one_of("split", split, SPLITS)]
        if not len(rows):
            needed = f"{self.scheme.lookback} + {self.scheme.horizon}"
            check.refuse("split", split, f"a series of {needed} steps at least that reaches it")
        return rows if stride == 1 else rows[(rows[:, 1] - rows[0, 1]) % stride == 0]

    def sampled(self, split: str, most: int, stride: int = 1) -> Windows:
        """The same with at most so many windows of every `stride`-th in a split, evenly spread."""
        chosen, rows = copy.copy(self), self.origins(split, stride)
        rows = rows[spread(len(rows), most)]
        chosen.__dict__["_origins"] = self._origins | {split: rows}
        return chosen

    def at(self, origins: np.ndarray) -> Window:
        """The windows with these origins."""
        rows = torch.from_numpy(self.offsets[origins[:, 0]] + origins[:, 1])
        past = rows + torch.arange(-self.scheme.lookback, 0).unsqueeze(1)
        future = rows + torch.arange(self.scheme.horizon).unsqueeze(1)
        both = torch.cat([past, future])
        series = torch.from_numpy(origins[:, 0].copy())
        return Window(
            self.seen[past], self.target[future], self.known[both], self.observed[past], series
        )

    def train_values(self, k: int) -> np.ndarray:
        """The training part of a series, in its own units."""
        start, end = self.parts[k]["train"]
        return self.panel.series[k].values[start:end]


def make_scheme(panel: Panel, horizon: int, lookback: int = 0, split: str = "70/10/20") -> Scheme:
    """The scheme of a panel; a look-back of 0 is chosen by the horizon, the season and the data."""
    check.size("horizon", horizon)
    check.size("lookback", lookback, least=0)
    mean, std = [], []
    for s in panel.series:
        start, end = borders(len(s), split, panel.frequency)["train"]
        part = s.values[start:end]
        if not np.isfinite(part).any(0).all():
            raise ValueError(f"{s.name}: there is no number in its training part")
        mean.append(tuple(np.nanmean(part, 0).tolist()))
        std.append(tuple(float(d) if d > 1e-8 else 1.0 for d in np.nanstd(part, 0)))
    season = training_season(panel, split)
    if not lookback:
        ends = borders(panel.longest, split, panel.frequency)["train"][1]
        room = max((ends - horizon) // 3, 1)
        lookback = min(max(round(7.5 * horizon), 3 * season, 16), room)
    return Scheme(
        tuple(s.name for s in panel.series),
        panel.channels,
        tuple(mean),
        tuple(std),
        lookback,
        horizon,
        tuple(map(tuple, panel.static.tolist())) if panel.static.size else (),
        panel.series[0].known.shape[1],
        panel.series[0].observed.shape[1],
        season,
        panel.frequency.seconds,
        panel.frequency.months,
        *_mean_and_std(_training(panel, split, "known")),
        *_mean_and_std(_training(panel, split, "observed")),
    )


def training_season(panel: Panel, split: str = "70/10/20") -> int:
    """The season of the steps; where that says none, the clearest period in the training part."""
    if panel.frequency.season > 1:
        return panel.frequency.season
    return period(_training(panel, split, "values"))


def _training(panel: Panel, split: str, name: str) -> list[np.ndarray]:
    """The training part of the values of each series, or of its known or observed columns."""
    ends = [borders(len(s), split, panel.frequency)["train"] for s in panel.series]
    pairs = zip(panel.series, ends, strict=True)
    return [getattr(s, name)[start:end] for s, (start, end) in pairs]


def _mean_and_std(parts: list[np.ndarray]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of each column over all series; 0 and 1 of a column without any number."""
    rows = np.concatenate(parts)
    there = np.isfinite(rows)
    count = np.maximum(there.sum(0), 1)
    mean = np.where(there, rows, 0.0).sum(0) / count
    std = np.sqrt((np.where(there, rows - mean, 0.0) ** 2).sum(0) / count)
    return tuple(mean.tolist()), tuple(np.where(std > 1e-8, std, 1.0).tolist())


def _covariates(parts: list[np.ndarray], mean: Sequence[float], std: Sequence[float]) -> Tensor:
    scaled = [held((part - np.array(mean)) / np.array(std)) for part in parts]
    return torch.from_numpy(np.concatenate(scaled)).float()
