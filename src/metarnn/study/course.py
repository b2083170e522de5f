"""What the stages of a race share: its plan, its trainings, its clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from metarnn.study.contenders import Contender
from metarnn.study.runner import Runner
from metarnn.study.study import Study
from metarnn.training.progress import Progress, clock

KEY = "race"


class Course:
    """The plan of a race, stored with the study, and the runners in it.

    Args:
        study: stores every decision, so that a race that was stopped goes on as it was planned
        make: makes the runner of a contender for a full training of this length
        left: seconds that are left for training
        steps: updates of a full training, where the clock decides nothing; else 0
        progress: where to show how it goes
        key: under which the study stores it
    """

    def __init__(
        self,
        study: Study,
        make: Callable[[Contender, float], Runner],
        left: Callable[[], float],
        steps: int,
        progress: Progress,
        key: str = KEY,
    ) -> None:
        self.study, self.make, self.left, self.steps = study, make, left, steps
        self.progress, self.key = progress, key
        self.runners: dict[str, Runner] = {}
        self.plan: dict[str, Any] = study.about.setdefault(key, {"rungs": [], "finals": {}})

    @property
    def length(self) -> float:
        """The length of a full training, in seconds or updates."""
        return self.plan["length"]

    def runner(self, contender: Contender, length: float = 0.0) -> Runner:
        """The runner of a contender, ready to train."""
        if contender.name not in self.runners:
            self.runners[contender.name] = self.make(contender, length or self.length)
        return self.runners[contender.name]

    def grow(self, contender: Contender, parent: Runner) -> Runner:
        """The runner of a contender that goes on from where its parent is now."""
        runner = self.runner(replace(contender, settings={**contender.settings, **parent.size}))
        if not runner.spent:
            runner.inherit(parent)
        return runner

    def decide(self, stage: str, decision: str, reason: str, **figures: Any) -> None:
        """Store a decision with its reason, and show it."""
        own = stage if self.key == KEY else f"{self.key}, {stage}"
        self.progress.say(self.study.decide(own, decision, reason, **figures))

    def words(self, time: float) -> str:
        """A time as people read it."""
        return f"{time:,.0f} updates" if self.steps else clock(time)
