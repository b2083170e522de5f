"""The regret of `metarnn learn`: its model beside GRU and LSTM trained for as long as it took."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from metarnn.study.study import Study
from metarnn.training.metrics import read_lines
from metarnn.training.progress import Progress

# Embedded data of every task.
EMBEDDED = ("pydoc", "stdlib", "dates", "numbers", "digits", "shapes", "morse", "tones", "visits",
            "sunspots", "lorenz", "mackey-glass", "van-der-pol", "shops")  # fmt: skip
UNITS = ("gru", "lstm")
# What a study decides about its data; the rivals get the same.
SHARED = ("split", "horizon", "source", "target", "targets", "series", "labels")


# A smaller loss counts as this: the ratio of losses of 1e-5 and 1e-7 says nothing of models that
# are both right.
FLOOR = 1e-3


@dataclass(frozen=True)
class Regret:
    """One data set and seed: the loss on held-out data of `learn`, and of each unit.

    >>> row = Regret("pydoc", "lm", 0, 4.0, "nll", 1.1, {"gru": 1.2, "lstm": 1.21}, "gru", 240.0)
    >>> round(row.regret, 3)
    0.917
    """

    data: str
    task: str
    seed: int
    minutes: float
    metric: str
    learn: float
    units: dict[str, float]
    winner: str
    seconds: float

    @property
    def regret(self) -> float:
        """The loss of `learn` over that of the better unit: below 1 it wins."""
        return max(self.learn, FLOOR) / max(min(self.units.values()), FLOOR)

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "regret": self.regret}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Regret:
        """Return the row that `as_dict` has written; other keys are ignored."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})


def measure(
    data: str, seed: int, minutes: float, folder: Path, progress: Progress, task: str = "auto"
) -> Regret:
    """Run a study and the trainings of its rivals one after the other, each in a new process.

    What is already in the folder is not run again.
    """
    place = folder / f"{Path(data).name}-{seed}"
    clock = ["--minutes", str(minutes), "--seed", str(seed), "--device", "cpu"]
    study_path = place / "learn"
    if not (study_path / "report.html").exists():
        resume = ["--resume"] if (study_path / "learn.json").exists() else []
        progress.say(f"{data}, seed {seed}: learn")
        _run("learn", *([] if resume else [data]), "--task", task, *clock,
             "--out", str(study_path), *resume)  # fmt: skip
    study = Study.load(study_path)
    metric, split = next(iter(study.scores)), study.about["split"]
    loss = study.scores[metric]
    if "sample" in study.about:  # its rivals are scored on all held-out data
        with torch.no_grad():
            loss = study.job.task.evaluate(study.model, split)[metric]
    losses = {}
    for unit in UNITS:
        run = place / unit
        if not (run / "ended.json").exists():
            progress.say(f"{data}, seed {seed}: {unit}")
            resume = ["--resume"] if (run / "config.toml").exists() else []
            _run("train", study.task, "--cell", unit, "--out", str(run), *resume, *clock,
                 "--steps", "0", *_shared(study))  # fmt: skip
        losses[unit] = _loss(run, f"{split}_{metric}")
    spent = float(study.about["seconds"])
    name = Path(data).name
    return Regret(name, study.task, seed, minutes, metric, loss, losses, study.best, spent)


def _shared(study: Study) -> Iterator[str]:
    """The flags that give a rival the same data."""
    base = study.about["base"]
    for name in ("data", *SHARED):
        value: Any = base.get(name)
        if value and not isinstance(value, bool):
            yield f"--{name}"
            yield from (map(str, value) if isinstance(value, list | tuple) else [str(value)])


def _run(*arguments: str) -> None:
    command = [sys.executable, "-m", "metarnn", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def _loss(run: Path, name: str) -> float:
    """The loss on held-out data that a training recorded at its end."""
    for line in reversed(read_lines(run / "metrics.jsonl")):
        value = line.get(name)
        if value is not None:
            return float(value)
    raise ValueError(f"{run} has no {name} in its metrics: did its training end?")


def table(rows: Sequence[Regret]) -> list[list[str]]:
    """A head and a row a data set: means over seeds of each loss, and of the regret."""
    lines = [["data", "minutes", "seeds", "loss", "learn", *UNITS, "regret", "winners"]]
    for data, minutes in dict.fromkeys((row.data, row.minutes) for row in rows):
        mine = [row for row in rows if (row.data, row.minutes) == (data, minutes)]
        means = [fmean(row.units[unit] for row in mine) for unit in UNITS]
        winners = ", ".join(dict.fromkeys(row.winner for row in mine))
        lines.append([
            data, f"{minutes:g}", str(len(mine)), mine[0].metric,
            *(f"{value:.4f}" for value in (fmean(row.learn for row in mine), *means)),
            f"{fmean(row.regret for row in mine):.3f}", winners,
        ])  # fmt: skip
    return lines
