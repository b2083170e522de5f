"""Strategies whose units are trained each with weights of its own."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from metarnn.search.derive import distinct
from metarnn.search.problem import Unit
from metarnn.search.space import Choices
from metarnn.search.strategies.base import Given, Strategy
from metarnn.tasks.task import Task
from metarnn.training import Trainer, generators
from metarnn.training.interrupt import Interrupted
from metarnn.training.position import Position

TRIES = 100  # neighbours drawn until one is new


@dataclass
class Candidate:
    """A unit that was tried; its score is the loss on the structure's data."""

    choices: Choices
    score: float


class Scratch(Strategy):
    """Each unit is trained with weights of its own, and scored on the structure's data."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self.position = Position()
        self.tried: list[Candidate] = []

    @property
    def at(self) -> Position:
        return self.position

    def propose(self) -> Choices:
        raise NotImplementedError

    def neighbour(self, choices: Choices) -> Choices:
        """A neighbour that was not tried yet; a step further where all of the nearest were."""
        known = {self.space.genotype(each.choices) for each in self.tried}
        found = choices
        for k in range(TRIES):
            found = self.space.mutate(choices if k % 10 else found, self.random)
            if self.space.genotype(found) not in known:
                break
        return found

    def step(self) -> None:
        choices = self.propose()
        steps = self.options.candidate_steps
        unit = self.space.genotype(choices).cell
        # The same start and the same batches for all: the unit alone makes the difference.
        score, at = trained_briefly(self.given, unit, steps, self.given.settings.seed)
        self.tried.append(Candidate(choices, score))
        self.position.step += steps
        self.position.elapsed += at.elapsed
        self.position.tokens += at.tokens

    def measure(self) -> dict[str, float]:
        if not self.tried:
            return {}
        scores = [each.score for each in self.tried]
        return {"candidates": len(scores), "score": scores[-1], "best_score": min(scores)}

    def finalists(self) -> list[Choices]:
        ranked = sorted(self.tried, key=lambda each: each.score)
        return distinct(self.space, (c.choices for c in ranked))[: self.options.finalists]

    def state_dict(self) -> dict[str, Any]:
        tried = [asdict(each) for each in self.tried]
        return {**super().state_dict(), "tried": tried, "position": asdict(self.position)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.position = Position(**state["position"])
        self.tried = [
            Candidate(self.space.check(each["choices"]), float(each["score"]))
            for each in state["tried"]
        ]


def trained_briefly(
    given: Given, unit: Unit, steps: int, seed: int, task: Task | None = None
) -> tuple[float, Position]:
    """The loss on the structure's data of a unit trained so long on the weights', and what it took.

    A unit that cannot be trained has the loss inf. With `task`, the loss is that of its split
    `valid` instead.
    """
    generators.seed_all(seed)
    limits = {"steps": steps, "epochs": 0.0, "minutes": 0.0, "patience": 0, "validate_every": 0}
    settings = replace(given.settings, **limits, seed=seed, tensorboard=False)
    model = given.problem.model(unit, given.options.search_width)
    trainer = Trainer(given.problem.weights, model, settings, world=given.world)
    try:
        result = trainer.fit()
    except ArithmeticError:  # not finite, or it spiked too often
        return float("inf"), trainer.at
    if result.reason == "interrupted":
        raise Interrupted(result.signal)
    score = result.best
    if task is not None:
        with torch.no_grad():
            scores = given.world.tell(task.evaluate(model.eval(), "valid"))
        score = next(iter(scores.values()))
    return (score if score == score else float("inf")), trainer.at
