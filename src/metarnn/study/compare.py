"""The winner of a study beside GRU, LSTM and random units, each trained for as long as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from metarnn.graph import save
from metarnn.graph.files import make_folder
from metarnn.runs.tasks import PLACES, open_run
from metarnn.search import UnitSpace
from metarnn.search.verdict import RANDOM, VALID, Row, Verdict
from metarnn.study.contenders import GRU, LSTM, Contender, refitted
from metarnn.study.finals import CHECKS
from metarnn.study.race import Race, cost
from metarnn.study.runner import Runner
from metarnn.study.study import UNITS, VERDICT_FOLDER, Study
from metarnn.tasks.split import Split
from metarnn.tasks.task import measure_of
from metarnn.training import config
from metarnn.training.progress import Contestant, Progress, clock
from metarnn.training.world import World, find_device

RANDOM_UNITS = 8  # that race for being the best of random search
MATRICES = 8  # of a random unit at most, as an LSTM has


@dataclass(frozen=True)
class Rival:
    """One row of a comparison: a contender on top of some settings."""

    name: str
    base: Any
    contender: Contender


def compare(study: Study, seeds: int, progress: Progress) -> Verdict:
    """Train the winner and its rivals for equal time, once for each seed, and score them.

    GRU and LSTM take part twice: with the settings of the task, and with those of the winner, so
    that what the unit won and what tuning won stand apart. What was trained before, in a comparison
    that was stopped, is not trained again.
    """
    return _Comparison(study, seeds, progress).run()


def minutes_of(study: Study, seeds: int) -> float:
    """How many minutes a comparison takes."""
    random_units = 1 + cost(RANDOM_UNITS) + study.run.config.refit
    trainings = 5 * seeds - 1 + random_units * seeds
    return trainings * study.about["trained"]["seconds"] / 60


class _Comparison:
    def __init__(self, study: Study, seeds: int, progress: Progress) -> None:
        self.study, self.seeds, self.progress = study, seeds, progress
        self.run_of_winner = open_run(study.path)
        self.entry: Any = self.run_of_winner.entry
        self.tuned = self.run_of_winner.config
        budget = study.about["budget"]
        self.updates = bool(budget["steps"])
        trained = study.about["trained"]
        self.length = float(trained["updates" if self.updates else "seconds"])
        self.world = World(device=find_device(budget["device"]))
        self.data = self.entry.load(self.tuned, self.run_of_winner.folder)
        self.split = Split.of(self.entry.job(self.tuned, self.data, self.run_of_winner.folder).task)

    def run(self) -> Verdict:
        scores: dict[str, list[Mapping[str, float]]] = {}
        sizes: dict[str, tuple[int, int]] = {}
        for seed in range(self.tuned.seed, self.tuned.seed + self.seeds):
            for rival in self._rivals():
                known = seed == self.tuned.seed and rival.name == self.study.best
                runner = self._trained(rival, seed, known)
                own = {**self._test(runner), VALID: runner.best}
                scores.setdefault(rival.name, []).append(own)
                sizes[rival.name] = runner.job.config.width, runner.parameters
        rows = tuple(Row(name, *sizes[name], tuple(each)) for name, each in scores.items())
        task = self.run_of_winner.prepare().task
        measure = measure_of(task, rows[0].scores[0])
        trained = self.study.about["trained"]
        split = self.study.about["split"]
        seconds = 0.0 if self.updates else trained["seconds"]
        verdict = Verdict(rows, split, trained["updates"], measure, seconds)
        self.study.keep_verdict(verdict.as_dict())
        return verdict

    def _rivals(self) -> Iterator[Rival]:
        """Who is trained, the winner first."""
        yield Rival(self.study.best, self.tuned, Contender(self.study.best))
        preset = next(iter(self.entry.presets.values()))
        base = self.study.about["base"]
        same = {name: base[name] for name in ("data", "split", "horizon") if name in base}
        limits = {"steps": 0, "epochs": 0.0, "minutes": 0.0, "patience": 0}
        plain = config.from_keys(self.entry.kind, {**preset, **same, **limits}, "the preset")
        for unit in (GRU, LSTM):
            for whose, base in (("task", plain), ("winner", self.tuned)):
                name = f"{unit.name} with the {whose}'s settings"
                yield Rival(name, base, replace(unit, name=name))
        yield Rival(RANDOM, self.tuned, Contender(RANDOM))

    def _trained(self, rival: Rival, seed: int, known: bool) -> Runner:
        if rival.name == RANDOM:
            return self._best_of_random(rival, seed)
        runner = self._runner(rival.base, seed, VERDICT_FOLDER, rival.contender, self.length)
        if known:  # the study itself trained it
            runner.adopt(self.run_of_winner.folder)
            return runner
        self.progress.say(f"{rival.name}, seed {seed}: {self._words()} of training")
        runner.finish(0.0, self.length, CHECKS, lambda runner: False)
        return runner

    def _words(self) -> str:
        return f"{self.length:,.0f} updates" if self.updates else clock(self.length)

    def _runner(
        self, base: Any, seed: int, below: str, contender: Contender, length: float
    ) -> Runner:
        settings = {name: getattr(base, name) for name in vars(base) if name not in PLACES}
        own = config.from_keys(self.entry.kind, {**settings, "seed": seed}, "a rival")
        runner = Runner(
            self.entry, own, contender, self.data, self.split,
            self.study.path / below / f"{contender.folder}-{seed}",
            updates=self.updates, end=length, world=self.world,
            progress=Contestant(self.progress, f"{contender.name}:"),
        )  # fmt: skip
        runner.start()
        return runner

    def _best_of_random(self, rival: Rival, seed: int) -> Runner:
        """Random units race as the contenders of the study did."""
        key = f"random-{seed}"
        choosing = replace(rival.base, refit=False)  # validation data choose among the units
        race = Race(
            self.study,
            partial(self._runner, choosing, seed, key),
            list(self._random_units(seed)),
            left=lambda: self.length * (1 + cost(RANDOM_UNITS)),
            useful=float("inf"),
            steps=int(self.length) if self.updates else 0,
            progress=self.progress,
            key=key,
            length=self.length,
        )
        best = race.run()
        if not rival.base.refit:
            return best
        runner = self._runner(rival.base, seed, key, refitted(best.contender), self.length)
        runner.finish(0.0, self.length, 1, lambda runner: False)
        return runner

    def _random_units(self, seed: int) -> Iterator[Contender]:
        space = UnitSpace(matrices=MATRICES)
        source = random.Random(seed)
        make_folder(self.study.path / UNITS)
        for k in range(RANDOM_UNITS):
            unit = space.genotype(space.draw(source))
            path = self.study.path / UNITS / f"random-{seed}-{k}.json"
            save(unit.graph(32, 32), path)
            size = str(self.study.about["parameters"])
            yield Contender(f"random {k}", {"cell": str(path), "params": size})

    def _test(self, runner: Runner) -> dict[str, float]:
        split = self.study.about["split"]
        return runner.scores(split)
