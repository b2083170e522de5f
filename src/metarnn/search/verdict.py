"""Is what was found any good? The same parameters, the same data, several seeds, side by side."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from metarnn.cells import cell, check
from metarnn.graph.files import document, make_folder, write
from metarnn.search.problem import Problem, Unit
from metarnn.tasks.language.model import count_parameters, solve_width
from metarnn.training import Folder, NotFinite, Settings, Trainer, World, generators
from metarnn.training.interrupt import Interrupted, Interruption
from metarnn.training.progress import SILENT, Progress

COUNTS = ("tokens", "unknown", "ran_off")  # of scores, those that are none
FOUND, RANDOM = "found", "best of random"
RIVALS: dict[str, Unit] = {"lstm": partial(cell, "lstm"), "gru": partial(cell, "gru")}


@dataclass(frozen=True)
class VerdictOptions:
    """How a found unit is compared; flags of `metarnn search`."""

    seeds: int = 3
    """Trainings from scratch for each unit of the verdict."""
    verdict_steps: int = 1000
    """Updates of each of them: the same number for all."""
    random_units: int = 8
    """Units at random, of which the best is in the verdict too: trained as long as candidates."""

    def __post_init__(self) -> None:
        for name in ("seeds", "verdict_steps", "random_units"):
            check.size(name, getattr(self, name))


@dataclass(frozen=True)
class Row:
    """A unit in the verdict: its width and size, and its scores for each seed."""

    name: str
    width: int
    parameters: int
    scores: tuple[Mapping[str, float], ...]

    def values(self, metric: str) -> list[float]:
        return [each[metric] for each in self.scores]


@dataclass(frozen=True)
class Verdict:
    """Rows, the found unit first, and the split they were scored on."""

    rows: tuple[Row, ...]
    split: str
    steps: int

    @property
    def metrics(self) -> list[str]:
        return [name for name in self.rows[0].scores[0] if name not in COUNTS]

    def table(self) -> list[list[str]]:
        """A head and a line a unit: name, width, parameters, mean ± deviation of each score."""
        lines = [["unit", "width", "parameters", *self.metrics]]
        for row in self.rows:
            scores = (_mean_and_deviation(row.values(metric)) for metric in self.metrics)
            lines.append([row.name, str(row.width), f"{row.parameters:,}", *scores])
        return lines

    def words(self) -> list[str]:
        """What the table says of the found unit, a line for each of the others."""
        metric = self.metrics[0]
        found, *others = self.rows
        said = []
        for other in others:
            word, margin = compare(found.values(metric), other.values(metric))
            text = f"The found unit {word} {other.name}"
            said.append(f"{text}: {metric} {margin:+.4f} on {self.split}, n = {len(found.scores)}.")
        said.append(
            "A win or a loss is a difference of means beyond two standard errors of it"
            + (", which one seed cannot show." if len(found.scores) == 1 else ".")
        )
        return said

    def as_dict(self) -> dict[str, Any]:
        rows = [{**vars(row), "scores": [dict(each) for each in row.scores]} for row in self.rows]
        return {"split": self.split, "steps": self.steps, "rows": rows, "words": self.words()}


def compare(ours: Sequence[float], theirs: Sequence[float]) -> tuple[str, float]:
    """ "beats", "ties with" or "loses to", where small is good, and the difference of the means.

    >>> compare([1.0, 1.1, 0.9], [2.0, 2.1, 1.9])
    ('beats', -1.0)
    >>> compare([1.0, 1.1, 0.9], [1.05, 0.95, 1.15])[0]
    'ties with'
    """
    margin = fmean(ours) - fmean(theirs)
    if not math.isfinite(margin):
        return ("loses to" if not math.isfinite(fmean(ours)) else "beats"), margin
    if min(len(ours), len(theirs)) < 2:
        return "ties with", margin
    error = math.sqrt(stdev(ours) ** 2 / len(ours) + stdev(theirs) ** 2 / len(theirs))
    if abs(margin) <= 2 * error:
        return "ties with", margin
    return ("beats" if margin < 0 else "loses to"), margin


def _mean_and_deviation(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{fmean(values):.4f} ± {stdev(values):.4f}"


def judge(
    problem: Problem,
    units: Mapping[str, Unit],
    parameters: int,
    settings: Settings,
    options: VerdictOptions,
    *,
    folder: Path | None = None,
    world: World | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Train every unit from scratch, as often as there are seeds, and score it.

    All have the widths that give them at most `parameters`, the same settings and the same number
    of updates of the same size. With a folder, each training is a run of its own in it, and what
    was done is not done again; a signal raises `Interrupted`, after everything was saved.
    """
    world = World() if world is None else world
    progress = SILENT if progress is None else progress
    limits = {"steps": options.verdict_steps, "epochs": 0.0, "minutes": 0.0, "patience": 0}
    settings = replace(settings, **limits, tensorboard=False)
    rows, interruption = [], Interruption()
    with interruption.watched():
        for name, unit in units.items():
            width = solve_width(parameters, lambda width, unit=unit: problem.model(unit, width))
            scores, size = [], 0
            for seed in range(settings.seed, settings.seed + options.seeds):
                if number := world.largest([interruption.signal])[0]:
                    raise Interrupted(int(number))
                place = None if folder is None else folder / f"{name.replace(' ', '-')}-{seed}"
                own = replace(settings, seed=seed)
                found, size = _trained(problem, unit, width, own, place, world)
                scores.append(found)
                metric, value = next(iter(found.items()))
                progress.say(f"verdict: {name}, seed {seed}: {metric} {value:.4f}")
            rows.append(Row(name, width, size, tuple(scores)))
    return Verdict(tuple(rows), problem.held_out, options.verdict_steps)


def _trained(
    problem: Problem, unit: Unit, width: int, settings: Settings, place: Path | None, world: World
) -> tuple[dict[str, float], int]:
    """The scores of one training, those of an earlier call if they are there, and the size."""
    generators.seed_all(settings.seed)
    model = problem.model(unit, width)
    size = count_parameters(model.parameters())
    known = None if place is None else place / "scores.json"
    if known is not None and known.exists():
        return _scores(known), size
    folder = None if place is None else Folder(place)
    if folder is not None and world.is_first:
        make_folder(folder.path.parent)
        make_folder(folder.path)
        folder.make()
    world.tell(None)
    trainer = Trainer(problem.whole, model, settings, folder=folder, world=world)
    if folder is not None:
        trainer.resume()
    try:
        result = trainer.fit()
    except NotFinite:
        scores = dict.fromkeys(problem.whole.evaluate(model, problem.held_out), math.inf)
    else:
        if result.reason == "interrupted":
            raise Interrupted(result.signal)
        with torch.no_grad():
            own = problem.whole.evaluate(model.eval(), problem.held_out) if world.is_first else {}
        scores = world.tell(own)
    if known is not None and world.is_first:
        write(known, json.dumps(scores))
    return scores, size


def _scores(path: Path) -> dict[str, float]:
    found = document(path)
    if not isinstance(found, dict) or not all(type(v) in (int, float) for v in found.values()):
        raise ValueError(f"{path} holds no scores: delete it, and they are made again")
    return found
