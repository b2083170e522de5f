"""Scores over tasks, with how sure they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.meta.episode import Episode
from metarnn.meta.learners import Adapting, Learner


@dataclass(frozen=True)
class Score:
    """A mean over tasks. With probability 0.95 the true one lies within ± `interval` of it.

    >>> print(Score(0.35, 0.02, 600, False))
    0.3500 ± 0.0200 (95% over 600 tasks, not transductive)
    """

    mean: float
    interval: float
    tasks: int
    transductive: bool

    def __str__(self) -> str:
        how = "transductive" if self.transductive else "not transductive"
        return f"{self.mean:.4f} ± {self.interval:.4f} (95% over {self.tasks} tasks, {how})"


def accuracy(prediction: Tensor, y: Tensor) -> Tensor:
    return (prediction.argmax(-1) == y).float().mean()


def score(
    learner: Learner,
    episodes: Iterable[Episode],
    steps: int | None = None,
    metric: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Score:
    """The mean of a metric, by default the learner's criterion, over the tasks of the episodes."""
    metric = learner.criterion if metric is None else metric
    values = []
    device = next(learner.parameters()).device
    before = learner.training
    learner.eval()
    try:
        with torch.no_grad():
            for episode in episodes:
                moved = episode.to(device)
                values.append(torch.vmap(metric)(learner.predict(moved, steps), moved.query_y))
        transductive = learner.transductive
    finally:
        learner.train(before)
    if not values:
        check.refuse("episodes", "none", "at least one")
    found = torch.cat(values).double()
    spread = 1.96 * float(found.std()) / math.sqrt(len(found)) if len(found) > 1 else math.inf
    return Score(float(found.mean()), spread, len(found), transductive)


RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
STEPS = (1, 3, 10, 30, 100)


def fine_tuning(
    learner: Adapting,
    episodes: Sequence[Episode],
    rates: Sequence[float] = RATES,
    steps: Sequence[int] = STEPS,
) -> tuple[float, int]:
    """The rate and the number of updates that score best: those of a baseline, on valid tasks.

    A network that was not trained to adapt has no rate of its own; with one that was chosen for
    another method it would lose more than it has to.
    """
    usual, found = learner.lr, {}
    try:
        for rate in rates:
            learner.lr = rate
            found |= {(rate, count): score(learner, episodes, count).mean for count in steps}
    finally:
        learner.lr = usual
    if not found:
        check.refuse("rates and steps", (tuple(rates), tuple(steps)), "at least one of each")
    # NaN is below no number.
    return min(found, key=lambda pair: (math.isnan(found[pair]), found[pair]))
