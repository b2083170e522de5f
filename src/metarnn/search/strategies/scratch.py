"""Strategies whose units are trained each with weights of its own."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from metarnn.search.canonical import canonical
from metarnn.search.derive import distinct
from metarnn.search.space import Choices
from metarnn.search.strategies.base import Given, Strategy, per_epoch
from metarnn.search.trial import Outcome, Trial
from metarnn.training.position import Position

TRIES = 100  # neighbours drawn until one is new


@dataclass
class Candidate:
    """A unit that was tried; its score is the loss on the structure's data."""

    choices: Choices
    score: float


class Scratch(Strategy):
    """Each unit is trained with weights of its own, and scored on the structure's data.

    Where several are tried at once, some are proposed before the outcome of the one before is
    known. Outcomes are taken in by the order of proposals, one a step: how long a trial takes
    changes nothing.
    """

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self.position = Position()
        self.tried: list[Candidate] = []
        self.waiting: deque[Choices] = deque()  # proposed, their outcomes not yet taken in
        self.tries = given.tries
        self._begun: deque[Callable[[Callable[[], None]], Outcome]] = deque()

    @property
    def at(self) -> Position:
        return self.position

    @property
    def proposed(self) -> int:
        """How many units were proposed."""
        return len(self.tried) + len(self.waiting)

    def propose(self) -> Choices:
        raise NotImplementedError

    def enough(self) -> bool:
        """Whether the budget is used up once all that wait are taken in."""
        steps = self.position.step + len(self.waiting) * self.options.candidate_steps
        at = replace(self.position, step=steps)
        return bool(at.reached(self.given.settings, per_epoch(self.given)))

    def reached(self) -> str:
        return "" if self.waiting else super().reached()

    def neighbour(self, choices: Choices) -> Choices:
        """A neighbour that was not tried yet; a step further where all of the nearest were."""
        before = [*(each.choices for each in self.tried), *self.waiting]
        forms = {canonical(self.space.genotype(each)) for each in before}
        found = choices
        for k in range(TRIES):
            found = self.space.mutate(choices if k % 10 else found, self.random)
            if canonical(self.space.genotype(found)) not in forms:
                break
        return found

    def step(self) -> None:
        began = time.monotonic()
        while len(self.waiting) < self.tries.ahead and not self.enough():
            self.waiting.append(self.propose())
        while len(self._begun) < len(self.waiting):
            self._begun.append(self.tries.begin(self._trial(self.waiting[len(self._begun)])))
        outcome = self._begun[0](self.given.halt)
        self._begun.popleft()
        self.tried.append(Candidate(self.waiting.popleft(), outcome.score))
        self.position.step += self.options.candidate_steps
        self.position.tokens += outcome.tokens
        self.position.elapsed += time.monotonic() - began

    def _trial(self, choices: Choices) -> Trial:
        # The same start and the same batches for all: the unit alone makes the difference.
        s, options = self.given.settings, self.options
        settings = replace(
            s,
            steps=options.candidate_steps,
            batch=options.search_batch or s.batch,
            lr=options.search_lr or s.lr,
        )
        if self.tries.device:
            settings = replace(settings, device=self.tries.device, precision="float32")
        return Trial(self.space.genotype(choices).cell, settings, options.search_width)

    def measure(self) -> dict[str, float]:
        if not self.tried:
            return {}
        scores = [each.score for each in self.tried]
        return {"candidates": len(scores), "score": scores[-1], "best_score": min(scores)}

    def best(self) -> list[Candidate]:
        """The finalists, with their scores."""
        ranked = {each.choices: each for each in sorted(self.tried, key=lambda each: each.score)}
        chosen = distinct(self.space, ranked)[: self.options.finalists]
        return [ranked[choices] for choices in chosen]

    def finalists(self) -> list[Choices]:
        return [each.choices for each in self.best()]

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "tried": [asdict(each) for each in self.tried],
            "waiting": [list(choices) for choices in self.waiting],
            "position": asdict(self.position),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.position = Position(**state["position"])
        self.tried = [
            Candidate(self.space.check(each["choices"]), float(each["score"]))
            for each in state["tried"]
        ]
        self.waiting = deque(self.space.check(tuple(choices)) for choices in state["waiting"])
