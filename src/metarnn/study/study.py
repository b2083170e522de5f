"""A study: the folder that `metarnn.learn` fills, what was decided in it, and the model it left."""

from __future__ import annotations

import hashlib
import html
import importlib
import os
import platform
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from metarnn import __version__
from metarnn.cells import check
from metarnn.graph.files import copy, copy_folder, document, write_document
from metarnn.runs.tasks import Run, open_run
from metarnn.search.verdict import Verdict
from metarnn.study import samples
from metarnn.study.runner import curve_of
from metarnn.tasks.rules import RuleScores, simple_rules
from metarnn.training import Folder
from metarnn.training import progress as shows
from metarnn.training.progress import Progress

LEARN, VERDICT = "learn.json", "verdict.json"
RACE, VERDICT_FOLDER, UNITS = "race", "verdict", "units"  # folders
VERSION = 2
HASHED = 1 << 30  # bytes of data at most, of which the hash is taken
# Of a training's folder, what belongs to the training alone.
APART = (".lock",)


class Study:
    """A study: its folder, its decisions and the model that it found best.

        study = metarnn.learn("book.txt", minutes=10)
        print(study.summary)
        study.generate("Once upon a time", length=200)

    What is decided is written to learn.json before anything comes of it, so that a study that was
    stopped goes on as it was planned. The folder is that of an ordinary run, too.

    Args:
        path: the folder
        minutes: how long it may take
    """

    def __init__(self, path: str | os.PathLike[str], minutes: float = 0.0) -> None:
        self.folder = Folder(path)
        self.seconds = 60 * minutes
        self.about: dict[str, Any] = {"version": VERSION}
        self._began = time.monotonic()
        self._before = 0.0

    # What a user asks of it.

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Study:
        """The finished study in a folder.

        >>> Study.load("nowhere")
        Traceback (most recent call last):
        FileNotFoundError: nowhere holds no finished study: there is no learn.json in it
        """
        study = cls(path)
        if not study.read():
            raise FileNotFoundError(f"{path} holds no finished study: there is no {LEARN} in it")
        if not study.finished:
            raise ValueError(f"the study in {path} is not finished: metarnn learn --resume")
        return study

    def save(self, path: str | os.PathLike[str]) -> Study:
        """Copy the study to another folder, which must be new."""
        copy_folder(self.path, Path(path))
        return Study.load(path)

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def task(self) -> str:
        """lm, translation, classification or forecasting."""
        return self.about["task"]

    @cached_property
    def run(self) -> Run[Any]:
        """The run of the model: its task, its configuration and its folder."""
        return open_run(self.path)

    @cached_property
    def job(self) -> Any:
        """The task with its data, and the trained model."""
        job = self.run.prepare()
        self.run.weights(job.model)
        return job

    @property
    def model(self) -> nn.Module:
        """The trained model, in evaluation mode."""
        return self.job.model

    @property
    def best(self) -> str:
        """The name of the contender whose model was kept."""
        return self.about["best"]

    @property
    def scores(self) -> dict[str, float]:
        """The scores of the model on held-out data."""
        return self.about["scores"]

    @cached_property
    def rules(self) -> RuleScores | None:
        """The scores of simple rules on the examples of `scores`."""
        split, sampled = self.about["split"], "sample" in self.about
        task = self.scored(self.job.task, split)
        return simple_rules(task, split, self.path, 0.0, sampled=sampled)

    def scored(self, task: Any, split: str) -> Any:
        """The task with the examples that `scores` are of: all, or a sample that was decided on."""
        few = self.about.get("sample")
        return task if few is None else task.sampled(split, check.size("sample", few))

    @property
    def summary(self) -> str:
        """What may be said of the model, in a few sentences."""
        return self.about["verdict"]

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """Each decision with its stage, its reason and the figures behind it."""
        return self.about.get("decisions", [])

    @property
    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """The learning curve of each contender: (seconds of training, validation score)."""
        updates = bool(self.about.get("budget", {}).get("steps"))
        return {
            name: curve_of(self.path / RACE / place / "metrics.jsonl", updates)
            for name, place in self.about.get("contenders", {}).items()
        }

    def generate(
        self, prompt: str = "", length: int = 400, *, temperature: float = 0.7, seed: int = 0
    ) -> str:
        """Text that follows a prompt, of a language model."""
        from metarnn.tasks.language import generate

        self._expect("lm")
        job: Any = self.job
        vocabulary = job.task.corpus.vocabulary
        with torch.no_grad():
            pieces = generate(
                job.model, vocabulary, prompt, length, temperature=temperature, seed=seed
            )
            return "".join(pieces)

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """The translation of each sentence."""
        self._expect("translation")
        task = self.job.task
        with torch.no_grad():
            hypotheses = task.translations(self.model, list(sentences), task.search)
        return [best.text for best, *_ in hypotheses]

    def predict(self, sequences: Sequence[Any]) -> list[Any]:
        """The label of each sequence: of arrays [T, C] or [T], or texts.

        A class; of labels a step or without places, a list of them; of several labels, those that
        hold. `predict_proba` tells how probable each is.
        """
        self._expect("classification")
        scheme, answers = self.job.task.data.scheme, self._answers(sequences)
        names = scheme.classes
        if scheme.kind == "one":
            return [names[int(np.argmax(p))] for p in answers]
        if scheme.kind == "multi":
            return [[names[k] for k in np.flatnonzero(np.asarray(p) > 0.5)] for p in answers]
        if scheme.kind == "tags":
            answers = [np.argmax(p, -1) for p in answers]
        return [[names[int(k)] for k in answer] for answer in answers]

    def predict_proba(self, sequences: Sequence[Any]) -> list[np.ndarray]:
        """The probability of each class, for each sequence; for labels a step [T, K]."""
        self._expect("classification")
        return self._answers(sequences)

    def _answers(self, sequences: Sequence[Any]) -> list[Any]:
        from metarnn.tasks.classification import predict
        from metarnn.tasks.classification.examples import Example

        examples = [Example(x if isinstance(x, str) else _steps(x)) for x in sequences]
        part = self.job.task.data.scheme.number(examples)
        with torch.no_grad():
            return predict(self.model, part)

    def forecast(self) -> list[dict[str, Any]]:
        """What follows the end of each series: a row a step, with quantiles where it tells them."""
        from metarnn.tasks.forecasting.future import SHOWN, future

        self._expect("forecasting")
        torch.manual_seed(self.run.config.seed)
        with torch.no_grad():
            rows = future(self.job.model, self.job.task.windows.panel)
        names = ["series", "channel", "date", "forecast", *(f"q{round(100 * q)}" for q in SHOWN)]
        return [dict(zip(names, row, strict=False)) for row in rows]

    def report(self) -> Path:
        """Draw the page of the study; the path of its file."""
        # The page is made by a folder that is built on this one.
        return importlib.import_module("metarnn.report.write").write_report([self.path])

    def compare(self, seeds: int = 1, progress: Progress | None = None) -> Verdict:
        """Train GRU, LSTM and random units for as long as the winner was, over so many seeds.

        The verdict is on those alone; the model of the study stays as it is.
        """
        from metarnn.study.compare import compare, minutes_of

        show = shows.progress() if progress is None else progress
        check.size("seeds", seeds)
        show.say(f"the comparison takes about {minutes_of(self, seeds):,.0f} minutes")
        with self.folder.locked(resume=True):
            verdict = compare(self, seeds, show)
        words = " ".join(verdict.words())
        self.note(verdict=f"{self.summary.partition(' A full comparison')[0]} {words}")
        return verdict

    def samples(self) -> Iterable[str]:
        """A few lines of what the model makes of held-out data."""
        return samples.lines(self.task, self.job, self.about["split"])

    def _expect(self, task: str) -> None:
        if self.task != task:
            check.refuse("task", self.task, f"a study of {task}", f"{self.path} is of {self.task}")

    def __repr__(self) -> str:
        what = self.summary if self.finished else "not finished"
        return f"Study({str(self.path)!r}): {what}"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{curve[-1][0]:,.0f}</td>"
            f"<td>{curve[-1][1]:.4f}</td></tr>"
            for name, curve in self.curves.items()
            if curve
        )
        unit = "updates" if self.about.get("budget", {}).get("steps") else "seconds"
        head = f"<tr><th>contender</th><th>{unit}</th><th>validation</th></tr>"
        about = html.escape(self.summary if self.finished else "not finished")
        return f"<p>{about}</p><table>{head}{rows}</table>"

    # What fills it.

    def read(self) -> bool:
        """Take in what an earlier call wrote; whether there was one."""
        file = self.path / LEARN
        if not file.exists():
            return False
        self.about = document(file)
        try:
            version = self.about.get("version")
            if version != VERSION:
                raise ValueError(f"version {version!r} is of another metarnn; begin a new study")
            self._before = check.number("seconds", self.about["seconds"])
            self.seconds = 60 * check.number("minutes", self.about["budget"]["minutes"])
            race = self.about.get("race", {"rungs": [], "finals": {}})
            for rung in race["rungs"]:
                kept = rung["kept"]
                names = {*race["contenders"], *(row["name"] for row in rung["standing"])}
                if not kept or not set(kept) <= names:
                    raise ValueError(f"a rung keeps {kept!r}")
            if "length" in race:
                check.number("length", race["length"])
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"{file} is damaged: {error!r}") from None
        return True

    def note(self, **decided: Any) -> None:
        """Write down what was decided, and how much time was spent."""
        self.about |= {**decided, "seconds": round(self.spent, 1)}
        write_document(self.path / LEARN, self.about)

    def decide(self, stage: str, decision: str, reason: str, **figures: Any) -> str:
        """Store a decision with its reason and figures; return it as a line of text."""
        entry = {"stage": stage, "decision": decision, "reason": reason, "figures": figures}
        others = [each for each in self.decisions if each["stage"] != stage]
        self.note(decisions=[*others, entry])
        return f"{stage}: {decision} ({reason})"

    @property
    def finished(self) -> bool:
        return "best" in self.about

    @property
    def spent(self) -> float:
        """Seconds that went by in this study, in all calls."""
        return self._before + time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.seconds - self.spent

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """A part of the work, whose time is noted."""
        began = time.monotonic()
        yield
        stages = {each["name"]: each["seconds"] for each in self.about.get("stages", [])}
        stages[name] = round(stages.get(name, 0.0) + time.monotonic() - began, 1)
        self.note(stages=[{"name": n, "seconds": s} for n, s in stages.items()])

    def keep_verdict(self, verdict: Mapping[str, Any]) -> None:
        write_document(self.path / VERDICT, verdict)

    def promote(self, run: Path) -> None:
        """Make the run of one training that of the whole study; last what makes it one."""
        files = [p for p in sorted(run.iterdir()) if p.is_file() and p.name not in APART]
        for file in sorted(files, key=lambda file: file.name == self.folder.config.name):
            copy(file, self.path / file.name)
        with suppress(OSError):
            self.folder.last.parent.rmdir()  # where a run would have checkpoints, and a study none


def _steps(x: Any) -> np.ndarray:
    """One sequence as float32 [T, C]."""
    array = np.asarray(x, dtype=np.float32)
    if array.ndim not in (1, 2):
        check.refuse("sequence", array.shape, "an array [T] or [T, C]")
    return array.reshape(len(array), -1)


def versions() -> dict[str, str]:
    return {
        "metarnn": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def machine(device: torch.device) -> str:
    """What computes, in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {torch.get_num_threads()} threads, {platform.machine()}"


def fingerprint(data: str) -> str:
    """The SHA-256 of the files that data are read from, "" for what is no file."""
    path = Path(data)
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    if not path.exists():
        files = sorted(p for p in path.parent.glob(f"{path.name}.*") if p.is_file())
    if not files or sum(file.stat().st_size for file in files) > HASHED:
        return ""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            while piece := opened.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()
