"""A search from its beginning to a unit: steps, a look now and then, finalists, a winner."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from metarnn.cells import check
from metarnn.search.genotype import Genotype
from metarnn.search.guards import SearchStopped
from metarnn.search.options import SearchOptions
from metarnn.search.problem import Problem
from metarnn.search.space import Choices, Space
from metarnn.search.strategies import STRATEGIES, Given
from metarnn.search.strategies.polish import Polish
from metarnn.search.strategies.scratch import Scratch
from metarnn.search.trial import Trial
from metarnn.search.workers import Workers
from metarnn.tasks.language.model import parse_count
from metarnn.training import Folder, Settings, World, checkpoint
from metarnn.training.interrupt import Interrupted, Interruption
from metarnn.training.metrics import Metrics
from metarnn.training.progress import SILENT, Progress, Report


@dataclass(frozen=True)
class Found:
    """How a search ended.

    unit       the winner
    choices    what it is in its space
    score      its loss on the third part of the data, after training from scratch for a while
    finalists  all that came so far, with their scores, the best first
    steps      updates of weights that were made
    """

    unit: Genotype
    choices: Choices
    score: float
    finalists: tuple[tuple[Choices, float], ...]
    steps: int
    elapsed: float


class Search:
    """A search; `run` it, or go on with one that was stopped after `resume`.

        found = Search(problem, UnitSpace(), Settings(batch=16, steps=2000), SearchOptions()).run()
        print(found.unit)

    Args:
        settings: the budget (steps or minutes), and how weights are trained
        options: which strategy, and how
        folder: where checkpoint and metrics go, locked by the caller; None to keep nothing
        workers: processes that try units side by side; None for this one alone
    """

    def __init__(
        self,
        problem: Problem,
        space: Space,
        settings: Settings,
        options: SearchOptions,
        *,
        folder: Folder | None = None,
        world: World | None = None,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> None:
        if not any((settings.steps, settings.epochs, settings.minutes)):
            check.refuse("steps", 0, "a budget: steps, epochs or minutes")
        settings = replace(settings, patience=0, tensorboard=False)
        if options.strategy == "random":  # what is polished is no longer random
            options = replace(options, polish=0)
        self.world = World() if world is None else world
        if workers is not None and self.world.size > 1:
            check.refuse("workers", workers.count, "0 where several processes train together")
        halt = self._stop_if_asked
        self.given = Given(problem, space, settings, options, self.world, workers, halt)
        self.space, self.options, self.folder = space, options, folder
        self.progress = SILENT if progress is None else progress
        self.strategy = STRATEGIES[options.strategy](self.given)
        self.polish: Polish | None = None
        self.finalists: list[Choices] = []
        self.scores: list[float] = []
        self.interruption = Interruption()
        self.metrics = Metrics(None)
        self._measured = 0
        self._looked = 0

    def run(self) -> Found:
        """The winner; `Interrupted` if a signal came, after everything was saved."""
        if self.folder is not None and self.world.is_first:
            self.metrics = Metrics(self.folder.metrics, self._measured)
        with self.interruption.watched(), self.progress:
            try:
                self._search()
                self._decide()
            except Interrupted:
                self._save()
                raise
        if self.folder is not None and self.world.is_first:
            self.folder.drop_earlier()
        return self._found()

    def _search(self) -> None:
        strategy = self.strategy
        while self.polish is None and not self._reached():
            strategy.step()
            looked = strategy.at.step // self.options.check_every
            if looked > self._looked or isinstance(strategy, Scratch):
                self._looked = looked
                self._look()
        if self.polish is None:
            best = strategy.best() if isinstance(strategy, Scratch) else ()
            self.polish = Polish(self.given, strategy.finalists(), best)
            self._save()
        while not self.finalists and self.options.polish and not self.polish.finished:
            self._stop_if_asked()
            self.polish.step()
            score = self.polish.tried[-1].score
            self.progress.say(f"polish {len(self.polish.tried)}: {score:.4f}")
            self._save()
        if not self.finalists:
            polished = self.options.polish > 0
            self.finalists = self.polish.finalists() if polished else self.polish.units
            self._save()

    def _reached(self) -> bool:
        self._stop_if_asked()
        (self.strategy.at.elapsed,) = self.world.largest([self.strategy.at.elapsed])
        return bool(self.strategy.reached())

    def _stop_if_asked(self) -> None:
        (number,) = self.world.largest([self.interruption.signal])
        if number:
            raise Interrupted(int(number))

    def _look(self) -> None:
        at = self.strategy.at
        numbers = self.strategy.measure()
        speed = at.tokens / max(at.elapsed, 1e-9)
        self.metrics.add(at.step, {**numbers, "tokens": at.tokens, "seconds": at.elapsed})
        self.progress.show(Report(at.step, self.strategy.done(), at.elapsed, speed, numbers))
        self._save()

    def _decide(self) -> None:
        """Train each finalist from scratch; the third part of the data tells which is best."""
        tries = self.given.tries
        begun = [tries.begin(self._final(c)) for c in self.finalists[len(self.scores) :]]
        for outcome in begun:
            self._stop_if_asked()
            self.scores.append(outcome(self._stop_if_asked).score)
            text = f"finalist {len(self.scores)} of {len(self.finalists)}: {self.scores[-1]:.4f}"
            self.progress.say(text)
            self._save()
        if not any(math.isfinite(score) for score in self.scores):
            raise SearchStopped(
                f"none of the {len(self.scores)} finalists can be trained: their losses are not "
                "finite. Try a lower --lr, or a space without relu and identity."
            )

    def _final(self, choices: Choices) -> Trial:
        options, unit = self.options, self.space.genotype(choices).cell
        settings = replace(self.given.settings, steps=options.finalist_steps)
        parameters = parse_count(options.finalist_params) if options.finalist_params else 0
        return Trial(unit, settings, options.search_width, parameters, decisive=True)

    def _found(self) -> Found:
        ranked = sorted(zip(self.finalists, self.scores, strict=True), key=lambda each: each[1])
        choices, score = ranked[0]
        unit, at = self.space.genotype(choices), self.strategy.at
        return Found(unit, choices, score, tuple(ranked), at.step, at.elapsed)

    # Where it stands.

    def state_dict(self) -> dict[str, Any]:
        return {
            "strategy": {"name": self.options.strategy, **self.strategy.state_dict()},
            "sizes": list(self.space.sizes),
            "polish": None if self.polish is None else self.polish.state_dict(),
            "finalists": [list(choices) for choices in self.finalists],
            "scores": list(self.scores),
            "looked": self._looked,
            "metrics": self.metrics.saved(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if (name := state["strategy"].get("name")) != self.options.strategy:
            check.refuse("strategy", self.options.strategy, f"{name!r}, as when it was saved")
        if list(state["sizes"]) != list(self.space.sizes):
            check.refuse("space", self.space, "the one that the checkpoint was searching")
        self.strategy.load_state_dict(state["strategy"])
        if state["polish"] is not None:
            self.polish = Polish(self.given)
            self.polish.load_state_dict(state["polish"])
        self.finalists = [self.space.check(tuple(choices)) for choices in state["finalists"]]
        self.scores = [float(score) for score in state["scores"]]
        self._looked, self._measured = int(state["looked"]), int(state["metrics"])

    def resume(self) -> bool:
        """Go on from the folder's last checkpoint; False if there is none yet."""
        assert self.folder is not None
        state = self.folder.read_last(self.progress.say)
        if state is None:
            return False
        try:
            self.load_state_dict(state)
        except (
            LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError,
        ) as error:  # fmt: skip
            raise checkpoint.CheckpointError(
                f"{self.folder.last} is no checkpoint of this search: {error!r}"
            ) from None
        return True

    def _save(self) -> None:
        if self.folder is None:
            return
        state = self.state_dict()
        if self.world.is_first:
            self.folder.save_last(state)
