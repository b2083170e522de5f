"""`metarnn train classification`: labels of sequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from shutil import get_terminal_size
from typing import Any, Literal

import numpy as np

from metarnn.cells import check
from metarnn.runs.tasks import Common, Job, chosen, fitting
from metarnn.search.problem import Problem, Unit
from metarnn.tasks.classification import (
    ClassificationTask,
    Classifier,
    ClassifierOptions,
    build_model,
    load,
    predict,
)
from metarnn.tasks.classification.examples import Dataset, Scheme
from metarnn.tasks.classification.metrics import confusion, f1
from metarnn.tasks.classification.part import parted
from metarnn.tasks.pretrained import MODEL, describe, described
from metarnn.tasks.unit import name_of
from metarnn.training import Folder, generators
from metarnn.training.progress import SILENT, Progress, column_groups, one_line

SHOWN = 20  # classes whose confusion a person can read

PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "data": "digits",
        "width": 64,
        "dropout": 0.2,
        "batch": 32,
        "optimizer": "adamw",
        "lr": 3e-3,
        "weight_decay": 0.01,
        "schedule": "cosine",
        "warmup": 50,
        "clip": 1.0,
        "steps": 1500,
        "validate_every": 100,
    },
}


@dataclass(frozen=True)
class Labelled:
    """What to read, and how."""

    data: str = "digits"
    """A file (.ts, .csv, .tsv, .jsonl, .npz, .txt), NAME_TRAIN.ts with NAME_TEST.ts beside it, a
    folder with one folder of images or texts a class, or what is generated here: digits, shapes
    (a label a step), morse (labels without places), tones (several labels), visits (missing
    values)."""
    labels: Literal["auto", "one", "tags", "ctc", "multi"] = "auto"
    """What labels are: one of a sequence, tags (one a step), ctc (a sequence of them, places not
    known), multi (several may hold); auto as the file tells."""
    pixels: bool = False
    """Read images pixel by pixel instead of row by row."""
    split: str = "auto"
    """Shares of train, valid and test, as in 70/10/20, where files do not tell."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: each class counts as much as any other, however rare."""
    evaluation_batch: int = 128
    """Sequences read side by side in an evaluation: its speed, never its result."""
    refit: bool = False
    """Train on the validation data as well, to the end: for the last training, once all settings
    are chosen. The last weights are kept."""


@dataclass(frozen=True)
class Config(Common, ClassifierOptions, Labelled):
    """Train a classifier of sequences.

    metarnn train classification --data Gestures_TRAIN.ts --minutes 5

    metarnn train classification --data sensors.csv --cell gru --params 50k
    """


class ClassificationEntry:
    name = "classification"
    about = "labels of sequences: one, one a step, several, or a sequence of them"
    kind = Config
    presets: Mapping[str, Mapping[str, Any]] = PRESETS

    def load(
        self, config: Config, folder: Folder | None = None, show: Progress = SILENT
    ) -> Dataset:
        known = _known(folder)
        return _load(config, None if known is None else known.scheme, show)

    def job(self, config: Config, data: Dataset, folder: Folder | None = None) -> Job[Config]:
        known, task = _known(folder), _task(data, config)
        options = ClassifierOptions(**chosen(ClassifierOptions, config))
        if known is not None and config.cell.endswith(".json"):
            # A run has its own copy of a cell from a file.
            options = replace(options, cell=known.options.cell)
        with generators.seeded(config.seed):
            model = fitting(lambda: build_model(data.scheme, options), folder)
        options = model.options
        config = replace(config, width=options.width, params="", patch=options.patch)
        return Job(config, task, model)

    def problem(self, config: Config, share: float, show: Progress = SILENT) -> Problem:
        data = _load(config, None, show)
        if "test" not in data.parts:
            why = "The winner is chosen by valid: a score on that would be no verdict."
            check.refuse("split", config.split, "one with a test, as in 70/10/20", why)
        options = ClassifierOptions(**chosen(ClassifierOptions, config))

        def model(unit: Unit, width: int) -> Classifier:
            sized = replace(options, cell=name_of(unit), width=width, params="")
            return build_model(data.scheme, sized, unit)

        weights, structure = (_task(part, config) for part in parted(data, share))
        return Problem(weights, structure, _task(data, config), model)

    def model(self, config: Config, folder: Folder) -> Classifier:
        model = described(folder.path)
        assert isinstance(model, Classifier)
        return model

    def save(self, job: Job[Config], folder: Folder) -> None:
        describe(job.model, folder.path)

    def held_out(self, job: Job[Config]) -> str:
        return "test" if "test" in job.task.data.parts else "valid"

    def details(self, job: Job[Config], scores: Mapping[str, float]) -> Iterable[str]:
        """The confusion of classes."""
        data = job.task.data
        scheme, test = data.scheme, data[self.held_out(job)]
        if scheme.kind not in ("one", "tags"):
            return
        found = predict(job.model, test)
        guess = np.concatenate([np.atleast_2d(p).argmax(-1) for p in found])
        truth = np.concatenate([np.atleast_1d(y) for y in test.y])
        if len(scheme.classes) <= SHOWN:
            yield from _confusion(confusion(truth, guess, len(scheme.classes)), scheme.classes)


def _known(folder: Folder | None) -> Classifier | None:
    """The model of a run as its folder describes it, without weights."""
    if folder is None or not (folder.path / MODEL).exists():
        return None
    model = described(folder.path)
    assert isinstance(model, Classifier)
    return model


def _load(config: Config, scheme: Scheme | None, show: Progress) -> Dataset:
    data = load(
        config.data,
        labels=config.labels,
        pixels=config.pixels,
        split=config.split,
        scheme=scheme,
    )
    show.say(_introduction(data))
    return data


def _task(data: Dataset, config: Config) -> ClassificationTask:
    return ClassificationTask(data, **chosen(ClassificationTask, config, "data"))


def _introduction(data: Any) -> str:
    scheme = data.scheme
    sizes = ", ".join(f"{name} {len(part):,}" for name, part in data.parts.items())
    what = "texts" if scheme.alphabet else f"{scheme.channels} channel{'s' * (scheme.channels > 1)}"
    more = ", some values missing" if scheme.missing else ""
    aside = "" if "valid" in data.parts else "; too few to set some aside for validation"
    length = f"up to {scheme.length:,} steps"
    return f"{len(scheme.classes)} classes, {what}, {length}{more}; {sizes}{aside}"


def _confusion(counts: np.ndarray, classes: tuple[str, ...]) -> Iterable[str]:
    """The table in parts of as many classes as a terminal has room for."""
    classes = tuple(map(one_line, classes))
    width = max(*(len(name) for name in classes), len(f"{counts.max()}"), 4)
    columns = [width] + (len(classes) + 1) * [max(width, 5)]
    head = ["", *classes, "F1"]
    scores = [f"{score:.3f}" for score in f1(counts)]
    rows = [[name, *map(str, row), score]
            for name, row, score in zip(classes, counts, scores, strict=True)]  # fmt: skip
    yield "true class down, answer across, F1 at the end:"
    for numbers in column_groups(columns, get_terminal_size().columns - 2):
        for row in [head, *rows]:
            yield "  " + "  ".join(f"{row[k]:>{columns[k]}}" for k in numbers)


ENTRY = ClassificationEntry()
