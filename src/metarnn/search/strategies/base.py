"""What every strategy is given, and what it offers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from metarnn.search.options import SearchOptions
from metarnn.search.problem import Problem
from metarnn.search.space import Choices, Space
from metarnn.search.trial import Alone
from metarnn.search.workers import Workers
from metarnn.training import Settings, World
from metarnn.training.position import Position


@dataclass(frozen=True)
class Given:
    """What a strategy is given.

    workers  who tries units, if that is not this process alone
    halt     raises where someone asked to stop; called while waiting
    """

    problem: Problem
    space: Space
    settings: Settings
    options: SearchOptions
    world: World = field(default_factory=World)
    workers: Workers | None = None
    halt: Callable[[], None] = lambda: None

    @property
    def tries(self) -> Alone | Workers:
        return self.workers or Alone(self.problem, self.world)


class Strategy:
    """A way to search a space. `step` until `done` is 1; then `finalists`, the best first.

    All randomness comes from generators that are part of `state_dict`, so that a search that goes
    on from there ends as one that was never stopped.
    """

    def __init__(self, given: Given) -> None:
        self.given, self.space, self.options = given, given.space, given.options
        self.random = random.Random(given.settings.seed)

    @property
    def at(self) -> Position:
        raise NotImplementedError

    def step(self) -> None:
        raise NotImplementedError

    def measure(self) -> dict[str, float]:
        """Numbers to log; a SearchStopped where they say that the search goes nowhere."""
        return {}

    def finalists(self) -> list[Choices]:
        raise NotImplementedError

    def reached(self) -> str:
        return self.at.reached(self.given.settings, per_epoch(self.given))

    def done(self) -> float:
        return self.at.done(self.given.settings, per_epoch(self.given))

    def state_dict(self) -> dict[str, Any]:
        version, words, gauss = self.random.getstate()
        return {"random": [version, list(words), gauss]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        version, words, gauss = state["random"]
        self.random.setstate((version, tuple(words), gauss))


def per_epoch(given: Given) -> float:
    """Updates of an epoch of the first part of the data; 0 where they have no end."""
    return float(getattr(given.problem.weights, "batches_per_epoch", 0.0))
