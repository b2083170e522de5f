"""What fits into the time there is: measured on this machine, then divided."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean

import torch
from torch import nn

from metarnn.search.options import SearchOptions
from metarnn.tasks.task import Task
from metarnn.training import Settings, Trainer

# Shares of all time. What is left after them is for the verdict, and a little for its surroundings.
SEARCH, RANDOM = 0.33, 0.09
# And for a longer training of what came out best: a race of all is too short for a good model.
LONGER, WORTH = 0.2, 1.5  # of the time; times the updates of the race, below which it is left out
# Of the time left, what a verdict is planned to take: speeds are measured in a moment.
CAREFUL = 0.8
BRED = 0.6  # of the search's time, by when no more candidates are bred
LEAST, MOST, TIMED = 5, 40, 0.7  # updates that are timed, and for how many seconds
VALIDATIONS = 5  # of each training
SEEDS = (1, 5)  # the fewest and the most of a verdict
CANDIDATES = (4, 60)
CANDIDATE_STEPS = (10, 300)


@dataclass(frozen=True)
class Pace:
    """How long things take, in seconds: the first update, any other, a validation, a test."""

    start: float
    update: float
    valid: float
    test: float = 0.0

    def training(self, steps: int) -> float:
        """A whole training, and its score."""
        return self.start + steps * self.update + (VALIDATIONS + 1) * self.valid + self.test


def slowest(paces: Sequence[Pace]) -> Pace:
    """Of each figure the largest."""
    return Pace(*(max(getattr(p, f.name) for p in paces) for f in fields(Pace)))


def measure(task: Task, model: nn.Module, settings: Settings, test: str = "") -> Pace:
    """The pace of a model, from a few updates and one evaluation of each kind."""
    began = time.monotonic()
    trainer = Trainer(task, model, replace(settings, steps=1000))
    trainer.update()
    start = time.monotonic() - began
    updates: list[float] = []
    while len(updates) < LEAST or (sum(updates) < TIMED and len(updates) < MOST):
        began = time.monotonic()
        trainer.update()
        updates.append(time.monotonic() - began)
    update = fmean(sorted(updates)[:-1])  # the slowest had something come in between
    model.eval()
    times = []
    with torch.no_grad():
        for split in ["valid", *([test] if test else [])]:
            began = time.monotonic()
            task.evaluate(model, split)
            times.append(time.monotonic() - began)
    return Pace(max(start - update, 0.0), update, *times)


def search_within(seconds: float, pace: Pace, options: SearchOptions) -> tuple[SearchOptions, int]:
    """Options of a search by evolution that takes about so long, and its number of updates.

    >>> found, steps = search_within(60, Pace(1.0, 0.02, 0.3), SearchOptions())
    >>> found.candidate_steps, steps // found.candidate_steps, found.polish
    (59, 15, 3)
    """
    fixed = pace.start + pace.valid
    # Updates are those of 16 candidates; of the best 3 again with 3 neighbours, which polishing
    # tries; and of 3 finalists that train twice as long.
    steps = (seconds - 19 * fixed - 6 * pace.valid) / (28 * pace.update)
    steps = _within(steps, CANDIDATE_STEPS)
    each = fixed + steps * pace.update
    again = 3 * (2 * pace.valid + 3 * steps * pace.update)
    candidates = _within((seconds - again) / (1.2 * each), CANDIDATES)
    population = max(4, min(options.population, candidates // 2))
    chosen = replace(
        options,
        strategy="evolution",
        candidate_steps=steps,
        population=population,
        tournament=min(options.tournament, population),
        polish=max(candidates // 5, 1),
        finalists=3,
        finalist_steps=2 * steps,
    )
    return chosen, candidates * steps


def random_within(seconds: float, pace: Pace, options: SearchOptions) -> int:
    """How many units at random can be tried in so long, each as a candidate was."""
    fixed = pace.start + pace.valid
    finalists = options.finalists * (fixed + options.finalist_steps * pace.update)
    each = fixed + options.candidate_steps * pace.update
    return _within((seconds - finalists) / each, (2, 16))


def verdict_within(
    seconds: float, paces: Sequence[Pace], enough: int, most: int
) -> tuple[int, int]:
    """Updates of each training, and seeds, of a verdict that takes about so long.

    Three seeds, where each training then has `enough` updates; fewer, where it has not; more,
    where all have `most`. However late it is, a quarter of `enough`: fewer tell nothing.

    >>> paces = [Pace(1.0, 0.02, 0.2, 0.3)] * 5
    >>> [verdict_within(seconds, paces, 200, 1000) for seconds in (30, 100, 200, 1000)]
    [(115, 1), (300, 2), (441, 3), (1000, 5)]
    """
    time_left = CAREFUL * seconds

    def steps(seeds: int) -> int:
        fixed = sum(pace.training(0) for pace in paces) - sum(pace.start for pace in paces)
        # What a compiler does, it does once.
        fixed = seeds * fixed + sum(pace.start for pace in paces)
        return int((time_left - fixed) / (seeds * sum(pace.update for pace in paces)))

    seeds = next((n for n in (3, 2) if steps(n) >= enough), SEEDS[0])
    while seeds >= 3 and seeds < SEEDS[1] and steps(seeds + 1) >= most:
        seeds += 1
    return max(min(steps(seeds), most), enough // 4), seeds


def longer_within(seconds: float, pace: Pace, raced: int, most: int) -> int:
    """Updates of a longer training in so long; 0 where they would not be many more.

    >>> pace = Pace(1.0, 0.02, 0.2, 0.3)
    >>> [longer_within(seconds, pace, 200, 1000) for seconds in (5, 20, 100)]
    [0, 675, 1000]
    """
    steps = min(int((CAREFUL * seconds - pace.training(0)) / pace.update), most)
    return steps if steps > WORTH * raced else 0


def width_within(seconds: float, update: float, width: int, enough: int, widest: int) -> int:
    """The width with which three seeds of five trainings have about enough updates in so long.

    Args:
        update: seconds of an update of a model of `width`

    >>> [width_within(seconds, 0.02, 96, 300, 512) for seconds in (10, 100, 1000)]
    [16, 64, 256]
    """
    ladder = [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
    meta = 6.5  # four units, and one with a network around it that takes longer
    fits = 16
    for each in ladder:
        # Matrices grow with the square, and are used the better the larger they are.
        cost = update * (each / width) ** 1.5
        if each <= widest and CAREFUL * seconds / (3 * meta * cost) >= enough:
            fits = each
    return fits


def _within(value: float, bounds: tuple[int, int]) -> int:
    return int(min(max(value, bounds[0]), bounds[1]))
