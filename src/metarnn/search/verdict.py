"""Is what was found any good? The same parameters, the same data, several seeds, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import nn

from metarnn.cells import Cell, cell, check
from metarnn.graph.files import document, make_folder, write_document
from metarnn.search.problem import Problem, Unit
from metarnn.tasks.language.model import count_parameters, solve_width
from metarnn.tasks.task import COUNTS, Measure, measure_of
from metarnn.tasks.unit import META
from metarnn.training import Folder, Settings, Trainer, World, generators
from metarnn.training.interrupt import Interrupted, Interruption
from metarnn.training.progress import SILENT, Progress, Race

VALID = "valid"  # of the scores, the best of the validations, by which nothing is judged
NO_SCORES = frozenset({*COUNTS, VALID})
FOUND, RANDOM = "found", "best of random"
SCORES = "scores.json"  # in the folder of a training that is done
FEW = 3  # with fewer seeds their deviation says little


@dataclass(frozen=True)
class Contender:
    """A unit that takes part, by the name that configurations have for it.

    >>> Contender("gru")(3, 8)
    GRU(input_size=3, hidden_size=8, ...

    name  lstm, gru, …; cell.json for one that has no name; with meta- before it, a network writes
          its weights
    unit  the unit itself, for one that has no name
    """

    name: str
    unit: Unit | None = None

    def __call__(self, inputs: int, width: int) -> Cell:
        make = partial(cell, self.name.removeprefix(META)) if self.unit is None else self.unit
        return make(inputs, width)


RIVALS: dict[str, Unit] = {"lstm": Contender("lstm"), "gru": Contender("gru")}
# Writes into a folder what makes a training a run of its own: unit, width, settings, model.
Keep = Callable[[Folder, Unit, int, Settings, nn.Module], None]


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
    """Rows, the found unit first, the split they were scored on, and the score that counts.

    `seconds` is the time of each training where that is what was equal; else the updates were.
    """

    rows: tuple[Row, ...]
    split: str
    steps: int
    measure: Measure
    seconds: float = 0.0

    @property
    def metrics(self) -> list[str]:
        return [name for name in self.rows[0].scores[0] if name not in NO_SCORES]

    def __getitem__(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def table(self) -> list[list[str]]:
        """A head and a line a unit: name, width, parameters, mean ± deviation of each score."""
        lines = [["unit", "width", "parameters", *self.metrics]]
        for row in self.rows:
            scores = (mean_and_deviation(row.values(metric)) for metric in self.metrics)
            lines.append([row.name, str(row.width), f"{row.parameters:,}", *scores])
        return lines

    def against(self, name: str, other: str) -> tuple[str, float]:
        """How one unit stands against another: see `compare`."""
        metric = self.measure.name
        return compare(self[name].values(metric), self[other].values(metric), self.measure)

    def words(self) -> list[str]:
        """What the table says of the first unit, a line for each of the others."""
        metric = self.measure.name
        found, *others = self.rows
        said = []
        for other in others:
            word, margin = self.against(found.name, other.name)
            unit = "" if self.seconds else " unit"
            text = f"The {found.name}{unit} {word} {other.name}"
            said.append(f"{text}: {metric} {margin:+.4f} on {self.split}, n = {len(found.scores)}.")
        return [*said, rule(self.measure, len(found.scores))]

    def as_dict(self) -> dict[str, Any]:
        rows = [{**vars(row), "scores": [dict(each) for each in row.scores]} for row in self.rows]
        counts = {"metric": self.measure.name, "large_is_good": self.measure.large}
        about = {"split": self.split, "steps": self.steps, "seconds": self.seconds, **counts}
        return {**about, "rows": rows, "words": self.words()}


def rule(measure: Measure, seeds: int) -> str:
    """What makes a win."""
    bound = f"{measure.plain:.0%}" if not measure.large else f"{measure.plain:.2g}"
    if seeds == 1:
        return (
            "One seed tells only what is far apart: a win or a loss is a difference of "
            f"{measure.name} beyond {bound}; all else is undecided."
        )
    also = f", and beyond {bound}, since they are only {seeds}" if seeds < FEW else ""
    return f"A win or a loss is a difference of means beyond two standard errors of it{also}."


def compare(
    ours: Sequence[float], theirs: Sequence[float], measure: Measure | None = None
) -> tuple[str, float]:
    """ "beats", "ties with" or "loses to", and the difference of the means.

    A difference counts that is beyond two standard errors of it and, where there are fewer than
    three seeds, beyond what `measure` says that one seed can tell. With one seed all else is
    "is undecided against". Small is good where `measure` does not say otherwise.

    >>> compare([1.0, 1.1, 0.9], [2.0, 2.1, 1.9])
    ('beats', -1.0)
    >>> compare([1.0, 1.1, 0.9], [1.05, 0.95, 1.15])[0]
    'ties with'
    """
    measure = Measure("score") if measure is None else measure
    margin = fmean(ours) - fmean(theirs)
    if not math.isfinite(margin):
        lost = not math.isfinite(fmean(ours))
        return ("loses to" if lost else "beats"), margin
    few = min(len(ours), len(theirs))
    scale = 1.0 if measure.large else min(abs(fmean(ours)), abs(fmean(theirs)))
    told = few >= FEW or abs(margin) > measure.plain * scale
    if few > 1:
        error = math.sqrt(stdev(ours) ** 2 / len(ours) + stdev(theirs) ** 2 / len(theirs))
        told = told and abs(margin) > 2 * error
    if not told:
        return ("ties with" if few > 1 else "is undecided against"), margin
    return ("beats" if (margin > 0) == measure.large else "loses to"), margin


def mean_and_deviation(values: Sequence[float]) -> str:
    """
    >>> mean_and_deviation([1.0, 2.0]), mean_and_deviation([1.5]), mean_and_deviation([math.inf])
    ('1.5000 ± 0.7071', '1.5000', 'not finite')
    """
    if not all(map(math.isfinite, values)):
        return "not finite"
    if len(values) < 2:
        return "".join(f"{value:.4f}" for value in values)
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
    keep: Keep | None = None,
) -> Verdict:
    """Train every unit from scratch, as often as there are seeds, and score it.

    All have the widths that give them at most `parameters`, the same settings and the same number
    of updates of the same size. With a folder, each training is a run of its own in it (`keep`
    writes what a training does not), and what was done is not done again; a signal raises
    `Interrupted`, after everything was saved.
    """
    world = World() if world is None else world
    progress = SILENT if progress is None else progress
    limits = {"steps": options.verdict_steps, "epochs": 0.0, "minutes": 0.0, "patience": 0}
    settings = replace(settings, **limits, tensorboard=False)
    widths = {
        name: solve_width(parameters, lambda width, unit=unit: problem.judged(unit, width))
        for name, unit in units.items()
    }
    scores: dict[str, list[dict[str, float]]] = {name: [] for name in units}
    sizes: dict[str, int] = {}
    interruption = Interruption()
    race = Race(progress, options.seeds * len(units))
    with interruption.watched():
        for seed in range(settings.seed, settings.seed + options.seeds):
            for name, unit in units.items():
                if number := world.largest([interruption.signal])[0]:
                    raise Interrupted(int(number))
                place = None if folder is None else folder / run_name(name, seed)
                own = replace(settings, seed=seed)
                title = f"{name}, seed {seed}:"
                known = place is not None and (place / SCORES).exists()
                found, sizes[name] = _trained(
                    problem, unit, widths[name], own, place, world, race.next(title), keep
                )
                scores[name].append(found)
                metric = measure_of(problem.whole, found).name
                if not known:
                    progress.say(f"{title} {metric} {found[metric]:.4f}")
    rows = tuple(Row(name, widths[name], sizes[name], tuple(scores[name])) for name in units)
    measure = measure_of(problem.whole, rows[0].scores[0])
    return Verdict(rows, problem.held_out, options.verdict_steps, measure)


def run_name(name: str, seed: int) -> str:
    """The folder of one training.

    >>> run_name("best of random", 0)
    'best-of-random-0'
    """
    return f"{name.replace(' ', '-')}-{seed}"


def _trained(
    problem: Problem,
    unit: Unit,
    width: int,
    settings: Settings,
    place: Path | None,
    world: World,
    progress: Progress,
    keep: Keep | None,
) -> tuple[dict[str, float], int]:
    """The scores of one training, those of an earlier call if they are there, and the size."""
    generators.seed_all(settings.seed)
    model = problem.judged(unit, width)
    size = count_parameters(model.parameters())
    known = None if place is None else place / SCORES
    if known is not None and known.exists():
        return _scores(known), size
    folder = None if place is None else Folder(place)
    if folder is not None and world.is_first:
        make_folder(folder.path.parent)
        make_folder(folder.path)
        folder.make()
        if keep is not None:
            keep(folder, unit, width, settings, model)
    world.tell(None)
    trainer = Trainer(problem.whole, model, settings, folder=folder, world=world, progress=progress)
    if folder is not None:
        trainer.resume()
    try:
        result = trainer.fit()
    except ArithmeticError:  # not finite, or it spiked too often
        scores = _failed(problem, model)
    else:
        if result.reason == "interrupted":
            raise Interrupted(result.signal)
        with torch.no_grad():
            own = problem.whole.evaluate(model.eval(), problem.held_out) if world.is_first else {}
        scores = {**world.tell(own), VALID: result.best}
    if known is not None and world.is_first:
        write_document(known, scores)
        assert folder is not None
        folder.drop_checkpoints()
    return scores, size


def _failed(problem: Problem, model: nn.Module) -> dict[str, float]:
    """The scores of a unit that could not be trained: as bad as can be."""
    scores = problem.whole.evaluate(model, problem.held_out)
    measure = measure_of(problem.whole, scores)
    worst = -math.inf if measure.large else math.inf
    return {**dict.fromkeys(scores, math.inf), measure.name: worst, VALID: math.inf}


def _scores(path: Path) -> dict[str, float]:
    found = document(path)
    if not isinstance(found, dict) or not all(type(v) in (int, float) for v in found.values()):
        raise ValueError(f"{path} holds no scores: delete it, and they are made again")
    return found
