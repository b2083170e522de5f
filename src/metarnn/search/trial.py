"""One unit, trained from scratch for a while and scored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from metarnn.search.problem import Problem, Unit
from metarnn.tasks.language.model import solve_width
from metarnn.tasks.task import Task
from metarnn.training import Settings, Trainer, World, generators
from metarnn.training.interrupt import Interrupted


@dataclass(frozen=True)
class Outcome:
    """What came of a trial: a loss, inf for a unit that cannot be trained, and what it took."""

    score: float
    tokens: float = 0.0


@dataclass(frozen=True)
class Trial:
    """A unit to be tried, as plain data: any process that has the problem can do it.

    unit        what is tried
    settings    how it is trained, and for how many updates
    width       hidden units of a layer
    parameters  at most so many instead, and whatever width that makes; 0 for `width`
    decisive    scored on the third part of the data, which chooses the winner, not on the second
    """

    unit: Unit
    settings: Settings
    width: int
    parameters: int = 0
    decisive: bool = False

    def run(self, problem: Problem, world: World) -> Outcome:
        """Train, and score; `Interrupted` if a signal came."""
        limits = {"epochs": 0.0, "minutes": 0.0, "patience": 0, "validate_every": 0}
        settings = replace(self.settings, **limits, tensorboard=False)
        width = self.width
        if self.parameters:
            width = solve_width(self.parameters, lambda width: problem.model(self.unit, width))
        generators.seed_all(settings.seed)
        model = problem.model(self.unit, width)
        trainer = Trainer(_of_batch(problem.weights, settings.batch), model, settings, world=world)
        try:
            result = trainer.fit()
        except ArithmeticError:  # not finite, or it spiked too often
            return Outcome(float("inf"), trainer.at.tokens)
        if result.reason == "interrupted":
            raise Interrupted(result.signal)
        score = result.best
        if self.decisive:
            with torch.no_grad():
                scores = world.tell(problem.structure.evaluate(model.eval(), "valid"))
            score = next(iter(scores.values()))
        return Outcome(score if score == score else float("inf"), trainer.at.tokens)


def _of_batch(task: Task, batch: int) -> Task:
    """The task with batches of this size."""
    if getattr(task, "batch", batch) == batch:
        return task
    return dataclasses.replace(cast(Any, task), batch=batch)


class Alone:
    """Trials one after the other, in this process."""

    ahead = 1  # trials begun before the outcome of the first is asked for
    device = ""  # where candidates are trained; "" for where all else is

    def __init__(self, problem: Problem, world: World) -> None:
        self.problem, self.world = problem, world

    def begin(self, trial: Trial) -> Callable[[Callable[[], None]], Outcome]:
        """A trial; call what is returned for its outcome."""
        return lambda halt: trial.run(self.problem, self.world)
