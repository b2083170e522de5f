"""One contender in training: it can be paused, scored and continued, and loses nothing by it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from metarnn.graph.files import copy
from metarnn.runs.tasks import Job, chosen, keep_settings
from metarnn.study import setup
from metarnn.study.contenders import Contender
from metarnn.tasks.language.model import count_parameters
from metarnn.tasks.split import Split
from metarnn.training import Folder, Settings, Trainer, checkpoint
from metarnn.training.growth import grown
from metarnn.training.guard import NotFinite
from metarnn.training.interrupt import Interrupted
from metarnn.training.metrics import read_lines
from metarnn.training.position import Position
from metarnn.training.progress import Progress
from metarnn.training.world import World

VALIDATION = 0.1  # of the time of a training, at most


class Runner:
    """A contender, its model and its trainer.

    Time is counted in seconds of training, validations included, or in updates.

    Args:
        entry: the task
        base: the configuration that contenders share
        contender: what this one changes
        data: what `entry.load` returned
        split: of these data, for the run's folder
        folder: where its run is kept
        updates: whether time is counted in updates
        end: the expected length of the training, in that unit
    """

    def __init__(
        self,
        entry: Any,
        base: Any,
        contender: Contender,
        data: Any,
        split: Split,
        folder: Path,
        *,
        updates: bool,
        end: float,
        world: World,
        progress: Progress,
    ) -> None:
        self.entry, self.contender, self.updates = entry, contender, updates
        self.folder, self.split = Folder(folder), split
        settings = replace(base, **contender.changes(base), **self._limits(end))
        self.job: Job[Any] = entry.job(settings, data)
        self.task = sample(self.job.task)
        self.parameters = count_parameters(self.job.model.parameters())
        self.failure = ""
        self.curve: list[tuple[float, float]] = []
        self.validation_seconds = 0.0  # of the last one; 0 if none was timed
        own = Settings(**chosen(Settings, self.job.config))
        self.trainer = Trainer(
            self.task, self.job.model, own, folder=self.folder, world=world, progress=progress
        )
        share = setup.AS_GOOD if setup.few(entry.name, self.job.task) else 0.0
        if not self.job.config.refit:
            self.trainer.margin = (setup.resolution(entry.name, self.job.task), share)

    def _limits(self, end: float) -> dict[str, Any]:
        if self.updates:
            return {"steps": max(round(end), 1), "minutes": 0.0}
        return {"steps": 0, "minutes": end / 60}

    @property
    def name(self) -> str:
        return self.contender.name

    @property
    def spent(self) -> float:
        """How long it has trained."""
        return self._time(self.trainer.at)

    @property
    def score(self) -> float:
        """The score of the last validation, infinite for one that failed."""
        return math.inf if self.failure or not self.curve else self.curve[-1][1]

    @property
    def best(self) -> float:
        """The best validation, by which its weights were kept."""
        return math.inf if self.failure else self.trainer.at.best

    @property
    def kept_at(self) -> float:
        """When it had the weights that were kept."""
        at = self.trainer.at
        return self.spent * at.best_step / max(at.step, 1)

    def _time(self, at: Position) -> float:
        return float(at.step) if self.updates else at.elapsed

    def start(self) -> None:
        """Make the run's folder, or go on from what is in it."""
        folder = self.folder
        folder.make()
        resumed = self.trainer.resume()
        if resumed:
            self.curve = curve_of(folder.metrics, self.updates, self.trainer.at.validated)
        self._describe()
        self.entry.save(self.job, folder)

    @property
    def size(self) -> dict[str, Any]:
        """The settings that make another model as wide as this one."""
        return {"width": self.job.config.width, "params": ""}

    def inherit(self, parent: Runner) -> None:
        """Go on from where another runner is, in a model that has all of its parameters."""
        state = grown(parent.trainer.state_dict(), self.job.model)
        copy(parent.folder.metrics, self.folder.metrics)
        self.folder.save_last(state)
        self.trainer.resume()
        self.curve = list(parent.curve)

    def _describe(self) -> None:
        """Write config.toml and the split: the folder is an ordinary run of its task."""
        self.split.keep(self.folder.path, str(self.job.config.data), begun=False)
        keep_settings(self.folder.config, self.entry.name, self.job.config)

    def advance(self, since: float, until: float, most: int = 2) -> None:
        """Train until so much time is spent, with at most so many validations on the way.

        Where those are depends on `since` and `until` alone: a training that was stopped in between
        goes on to the same ones. One that is not finite, or whose loss spikes again and again, has
        failed.
        """
        self._train_and_validate(since, until, most, lambda runner: False)

    def finish(self, since: float, end: float, most: int, done: Callable[[Runner], bool]) -> None:
        """Train to the end, the learning rate falling, or until `done` after a validation; the
        model then has the weights that scored best."""
        self._extend(end)
        if self._train_and_validate(since, end, most, done):
            self.trainer.limit(steps=self.trainer.at.step, minutes=0.0)
        self._train(None)

    def _train_and_validate(
        self, since: float, until: float, most: int, done: Callable[[Runner], bool]
    ) -> bool:
        """Whether it was `done` before the time was spent."""
        checks = self._checks(until - since, most)
        for k in range(1, checks + 1):
            target = since + (until - since) * k / checks
            if not any(at >= target for at, _ in self.curve):
                self._train(lambda at, target=target: self._time(at) >= target)
                self._validate()
            if self.failure:
                return False
            if done(self):
                return True
        return False

    def _extend(self, end: float) -> None:
        """Set when the training ends, which its schedule follows."""
        limits = self._limits(end)
        self.trainer.limit(**limits)
        self.job = replace(self.job, config=replace(self.job.config, **limits))
        keep_settings(self.folder.config, self.entry.name, self.job.config)

    def _train(self, pause: Callable[[Position], bool] | None) -> None:
        try:
            result = self.trainer.fit(pause)
        except (NotFinite, ArithmeticError) as error:
            self.failure = str(error).split(". ")[0]
            return
        if result.signal:  # it may have come after the last update of this training
            raise Interrupted(result.signal)

    def _checks(self, time: float, most: int) -> int:
        """How many validations take no more than a share of so much time."""
        if self.updates or not self.validation_seconds:
            return most
        return int(min(max(VALIDATION * time / self.validation_seconds, 1), most))

    def seconds_per_example(self) -> float:
        """What scoring an example in full takes, judged by the last validation.

        A part of one is timed where there was none, or where validations leave something out.
        """
        if not self.validation_seconds or hasattr(self.task, "quick"):
            task, model = self.job.task, self.job.model.eval()
            small = task.sampled("valid", max(task.enough // 8, 16))
            with torch.no_grad():
                task.sampled("valid", 16).evaluate(model, "valid")  # the first call may compile
                began = time.monotonic()
                small.evaluate(model, "valid")
            return (time.monotonic() - began) / max(small.amount("valid"), 1)
        return self.validation_seconds / max(self.task.amount("valid"), 1)

    def time_validation(self) -> None:
        """Estimate what a validation takes, so that the first ones are not too many."""
        if not self.validation_seconds:
            self.validation_seconds = self.seconds_per_example() * self.task.amount("valid")

    def _validate(self) -> None:
        if self.failure:
            return
        if self.trainer.at.validated != self.trainer.at.step:
            began = time.monotonic()
            self.trainer.validate()
            self.validation_seconds = time.monotonic() - began
            self.trainer.at.elapsed += self.validation_seconds
        self.curve.append((self.spent, self.trainer.at.scores[-1]))

    def averaged(self) -> AbstractContextManager[None]:
        """Inside the block the model has its averaged weights, which its scores are of."""
        return self.trainer.average.applied()

    def scores(self, split: str) -> dict[str, float]:
        """The scores of its best weights on a whole split."""
        self.load()
        with torch.no_grad():
            return self.job.task.evaluate(self.job.model.eval(), split)

    def adopt(self, folder: Folder) -> None:
        """Take the weights of a finished run in the place of a training."""
        for file in ("model", "metrics"):
            copy(getattr(folder, file), getattr(self.folder, file))
        self.curve = curve_of(folder.metrics, self.updates)
        self.trainer.at.best = min(score for _, score in self.curve)

    def load(self) -> None:
        """Give the model the weights that scored best."""
        weights = checkpoint.read_weights(self.folder.model)
        checkpoint.load_weights(self.job.model, weights, str(self.folder.model))

    def pace(self, updates: int = 0) -> float:
        """Seconds of an update, from the training so far or from so many more updates."""
        at = self.trainer.at
        if at.step < updates:
            first = at.step + max(updates // 3, 1)  # the first ones compile and fill caches
            self._train(lambda at: at.step >= first)
            began, steps = at.elapsed, at.step
            self._train(lambda at: at.step >= steps + updates)
            return max(at.elapsed - began, 1e-9) / max(at.step - steps, 1)
        return max(at.elapsed, 1e-9) / max(at.step, 1)


def sample(task: Any) -> Any:
    """The task with a fixed sample of its validation data, for decisions in little time."""
    small = task.sampled("valid", task.enough)
    return replace(small, quick=True) if hasattr(small, "quick") else small


def curve_of(metrics: Path, updates: bool, last: int | None = None) -> list[tuple[float, float]]:
    """The learning curve in a run's metrics: (time, score) of each validation, up to an update."""
    curve = []
    for line in read_lines(metrics) if metrics.exists() else ():
        scores = [v for name, v in line.items() if name.startswith("valid_")]
        if scores and "seconds" in line and (last is None or line["step"] <= last):
            score = math.inf if scores[0] is None else float(scores[0])
            curve.append((float(line["step"] if updates else line["seconds"]), score))
    return curve
