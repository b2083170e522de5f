"""How far a training has come, and whether that is far enough."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from metarnn.cells import check
from metarnn.training.settings import Settings


@dataclass
class Position:
    """How far a training has come, in numbers."""

    step: int = 0
    elapsed: float = 0.0  # seconds
    tokens: float = 0.0
    validated: int = 0  # the step of the last validation
    scores: list[float] = field(default_factory=list)  # of all validations
    best: float = math.inf
    best_step: int = 0
    slowed: float = 1.0  # what spikes of the loss have made of the learning rate

    def __post_init__(self) -> None:
        for name in ("step", "validated", "best_step"):
            check.size(name, getattr(self, name), least=0)
        for name in ("elapsed", "tokens", "slowed"):
            check.number(name, getattr(self, name))
        if not all(isinstance(score, float | int) for score in (self.best, *self.scores)):
            check.refuse("scores", self.scores, "a list of numbers")

    def due(self, every: int) -> bool:
        """Whether it is time for what is done every so many steps; 0 for never."""
        return every > 0 and self.step > 0 and self.step % every == 0

    def shares(self, s: Settings, per_epoch: float) -> dict[str, float]:
        """Of each limit, the share that is behind us; at 1 it is reached.

        Args:
            s: the settings that have the limits
            per_epoch: how many steps an epoch has
        """
        found: dict[str, float] = {}
        if s.steps:
            found["steps"] = self.step / s.steps
        if s.epochs:
            found["epochs"] = self.step / per_epoch / s.epochs
        if s.minutes:
            found["minutes"] = self.elapsed / (60 * s.minutes)
        return found

    def done(self, s: Settings, per_epoch: float) -> float:
        """The share of the training that is behind us, by the nearest limit, 0 … 1."""
        return min(max(self.shares(s, per_epoch).values(), default=0.0), 1.0)

    def scheduled(self, s: Settings, per_epoch: float) -> float:
        """The share of the training as schedules count it: by the clock only where that alone ends
        the training, so that what does not depend on the clock is the same each time."""
        return min(next(iter(self.shares(s, per_epoch).values()), 0.0), 1.0)

    def reached(self, s: Settings, per_epoch: float) -> str:
        """The limit that is reached, "" for none."""
        for limit, share in self.shares(s, per_epoch).items():
            if share >= 1:
                return limit
        return "patience" if s.patience and self.fruitless >= s.patience else ""

    @property
    def fruitless(self) -> int:
        """Validations since the best one."""
        return len(self.scores) - 1 - self.scores.index(self.best) if self.best_step else 0

    def judge(self, score: float, margin: float = 0.0, share: float = 0.0) -> bool:
        """Take in the score of a validation; whether it is the best so far.

        A score that exceeds the lowest so far by at most `margin`, or by at most `share` of it,
        counts as the best: of scores as good as each other the last is kept.
        """
        lowest = min(self.scores, default=math.inf)
        margin = max(margin, share * abs(lowest)) if math.isfinite(lowest) else 0.0
        self.scores.append(score)
        self.validated = self.step
        better = score < self.best or (margin > 0 and score <= lowest + margin)
        if better:
            self.best, self.best_step = score, self.step
        return better
