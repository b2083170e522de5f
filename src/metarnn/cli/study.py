"""A study: the folder that `metarnn learn` fills, and what it says of itself in learn.json."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from metarnn import __version__
from metarnn.cells import check
from metarnn.graph.files import beside, document, write_document
from metarnn.search.verdict import Verdict
from metarnn.training import Folder

LEARN, VERDICT = "learn.json", "verdict.json"
PLANNED = ("parameters", "random_units")  # of every plan
HASHED = 1 << 30  # bytes of data at most, of which the hash is taken
# Of a training's folder, what belongs to the training alone.
APART = ("scores.json", ".lock")


class Study:
    """The folder of a study, what was decided so far, and how much of its time is left.

    What is decided is written down before anything comes of it, so that a study that was stopped
    goes on as it was planned.
    """

    def __init__(self, path: Path, minutes: float) -> None:
        self.folder = Folder(path)
        self.seconds = 60 * minutes
        self.about: dict[str, Any] = {"version": 1}
        self._began = time.monotonic()
        self._before = 0.0

    @property
    def path(self) -> Path:
        return self.folder.path

    def read(self) -> bool:
        """Take in what an earlier call wrote; whether there was one."""
        file = self.path / LEARN
        if not file.exists():
            return False
        self.about = document(file)
        try:
            stages = {str(each["name"]): each["seconds"] for each in self.about["stages"]}
            self._before = check.number("seconds", sum(stages.values()))
            self.seconds = 60 * check.number("minutes", self.about["budget"]["minutes"])
            for name in PLANNED if "plan" in self.about else ():
                check.size(name, self.about["plan"][name])
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"{file} is damaged: {error!r}") from None
        return True

    def note(self, **decided: Any) -> None:
        """Write down what was decided."""
        self.about |= decided
        write_document(self.path / LEARN, self.about)

    def decide(self, stage: str, decision: str, reason: str, **figures: Any) -> str:
        """Store a decision with its reason and figures; return it as a line of text."""
        entry = {"stage": stage, "decision": decision, "reason": reason, "figures": figures}
        others = [each for each in self.about.get("decisions", []) if each["stage"] != stage]
        self.note(decisions=[*others, entry])
        return f"{stage}: {decision} ({reason})"

    @property
    def finished(self) -> bool:
        return "best_run" in self.about

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.seconds - self._before - (time.monotonic() - self._began)

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """A part of the work, whose time is noted."""
        began = time.monotonic()
        yield
        stages = {each["name"]: each["seconds"] for each in self.about.get("stages", [])}
        stages[name] = round(stages.get(name, 0.0) + time.monotonic() - began, 1)
        self.note(stages=[{"name": n, "seconds": s} for n, s in stages.items()])

    def keep(self, verdict: Verdict) -> None:
        write_document(self.path / VERDICT, verdict.as_dict())

    def promote(self, run: Path) -> None:
        """Make the run of one training that of the whole study; last what makes it one."""
        files = [p for p in sorted(run.iterdir()) if p.is_file() and p.name not in APART]
        for file in sorted(files, key=lambda file: file.name == self.folder.config.name):
            with beside(self.path / file.name) as new:
                shutil.copyfile(file, new)
        with suppress(OSError):
            self.folder.last.parent.rmdir()  # where a run would have checkpoints, and a study none


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
    found = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            while piece := opened.read(1 << 20):
                found.update(piece)
    return found.hexdigest()
