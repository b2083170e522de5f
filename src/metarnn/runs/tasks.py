"""What there is to train: each task is one file, which `train`, `evaluate` and others find here."""

from __future__ import annotations

import glob
import importlib
import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from torch import nn

from metarnn.cells import check
from metarnn.tasks.affordable import affordable
from metarnn.tasks.split import Split
from metarnn.training import Folder, Settings, checkpoint, config
from metarnn.training.progress import SILENT, Progress

# The module of each task has an `ENTRY`; it is imported only when it is asked for.
TASKS = {
    "lm": "metarnn.runs.lm",
    "translation": "metarnn.runs.translation",
    "classification": "metarnn.runs.classification",
    "forecasting": "metarnn.runs.forecasting",
    "fewshot": "metarnn.runs.fewshot",
}

# What puts a run of each task to use.
VERBS = {
    "lm": "generate",
    "translation": "translate",
    "classification": "classify",
    "forecasting": "forecast",
    "fewshot": "adapt",
}

# Flags that say where, not how: they are no part of config.toml.
PLACES = ("config", "preset", "out", "resume")


@dataclass(frozen=True)
class Common(Settings):
    """What `metarnn train` takes whatever the task."""

    preset: str = ""
    """Settings by name, to which all other flags are changes."""
    config: str = ""
    """A TOML file with settings, such as the config.toml of another run."""
    out: str = ""
    """The run folder; by default a new one under runs/."""
    resume: bool = False
    """Go on with the run in --out where it stopped; begin it if there is none."""


C = TypeVar("C", bound=Common)
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Job(Generic[C]):
    """A task and a model made from a configuration; `config` has what was solved for."""

    config: C
    task: Any  # a Task
    model: nn.Module


class Entry(Protocol[C]):
    """What a task's file offers.

    name     `metarnn train NAME`
    kind     its configuration
    presets  configurations by name; the first is what runs without any flag
    """

    name: str
    about: str
    kind: type[C]
    presets: Mapping[str, Mapping[str, Any]]

    def load(self, config: C, folder: Folder | None = None, show: Progress = SILENT) -> Any:
        """The data of a configuration; with a folder, numbered as the run in it had them."""
        ...

    def job(self, config: C, data: Any, folder: Folder | None = None) -> Job[C]:
        """The task and the model of a configuration on data that are loaded."""
        ...

    def model(self, config: C, folder: Folder) -> nn.Module:
        """The model of a run, without its data and with no weights yet."""
        ...

    def held_out(self, job: Job[C]) -> str:
        """The split whose score is reported at the end."""
        ...

    def save(self, job: Job[C], folder: Folder) -> None:
        """Write what `prepare` and `model` need from a folder."""
        ...

    def details(self, job: Job[C], scores: Mapping[str, float]) -> Iterable[str]:
        """Lines about the model at work on held-out data, beyond its scores."""
        ...


def prepare(
    entry: Entry[C], config: C, folder: Folder | None = None, show: Progress = SILENT
) -> Job[C]:
    """The job of a configuration; with a folder, what it knows of the data is put to use."""
    return entry.job(config, entry.load(config, folder, show), folder)


def chosen(kind: type, config: Any, *without: str) -> dict[str, Any]:
    """What a configuration says of the fields of a dataclass, by their names."""
    names = [f.name for f in fields(kind) if hasattr(config, f.name) and f.name not in without]
    return {name: getattr(config, name) for name in names}


def _stored(settings: C) -> C:
    """The settings with data that can be read from any working directory."""
    data = getattr(settings, "data", "")
    return replace(settings, data=located(data)) if data else settings


def stored(settings: Common) -> dict[str, Any]:
    """The settings as a run keeps them, by name."""
    own = vars(_stored(settings))
    return {name: value for name, value in own.items() if name not in PLACES}


def located(data: str) -> str:
    """The absolute path of data, of a pattern of files or of aligned files; of others the name.

    >>> located("pydoc"), located("-"), located("hf:x")
    ('pydoc', '-', 'hf:x')
    """
    # Files whose names look like embedded data are not read: loaders prefer the embedded.
    named = data and not os.path.dirname(data) and not os.path.splitext(data)[1]
    embedded = importlib.import_module("metarnn.tasks.look").EMBEDDED if named else {}
    if any(data in names for names in embedded.values()):
        return data
    there = os.path.exists(data) or any(glob.iglob(data))
    return os.path.abspath(data) if there or any(glob.iglob(f"{glob.escape(data)}.*")) else data


def keep_settings(path: Path, task: str, settings: Common) -> None:
    """Write the config.toml of a run."""
    config.save(path, task, _stored(settings), PLACES)


def fitting(make: Callable[[], M], folder: Folder | None) -> M:
    """The model that `make` makes; one of a run is first compared with the run's weights."""
    return make() if folder is None else affordable(make, folder.model)


def find(name: str) -> Entry[Any]:
    """The task of that name."""
    return importlib.import_module(TASKS[check.one_of("task", name, TASKS)]).ENTRY


@dataclass(frozen=True)
class Run(Generic[C]):
    """A run folder, opened: its task and configuration."""

    folder: Folder
    entry: Entry[C]
    config: C
    own_data: bool = True  # those it was trained on, split as they were then

    def prepare(self, show: Progress = SILENT) -> Job[C]:
        """The task and the model of the run; refused where its data have changed."""
        job = prepare(self.entry, self.config, self.folder, show)
        if self.own_data:
            Split.of(job.task).verify(self.folder.path, str(getattr(self.config, "data", "")))
        return job

    def weights(self, model: nn.Module) -> nn.Module:
        """The model with what it has learned."""
        path = self.folder.model
        if not path.exists():
            study = self.folder.path.absolute().parent.parent
            if (study / "learn.json").exists():
                raise FileNotFoundError(
                    f"{self.folder} has no {path.name}: a finished study keeps the weights of its "
                    f"best contender alone, in {study}"
                )
            raise FileNotFoundError(
                f"{self.folder} has no {path.name} yet: it comes with the first validation"
            )
        checkpoint.load_weights(model, checkpoint.read_weights(path), str(path))
        return model.eval()


def open_run(path: str | os.PathLike[str], **changes: Any) -> Run[Any]:
    """The run in a folder, with changes to its configuration."""
    folder = Folder(path)
    if not folder.config.exists():
        raise FileNotFoundError(f"{folder} is no run: there is no {folder.config.name} in it")
    keys = config.read(folder.config)
    entry = find(str(keys.pop("task", "")))
    found = config.from_keys(entry.kind, {**keys, **changes}, str(folder.config))
    return Run(folder, entry, found, own_data=changes.keys().isdisjoint(("data", "split")))


def refuse_use(path: str | os.PathLike[str], wanted: str, entry: Entry[Any]) -> NoReturn:
    """Refuse a run of another task than a command is for, and name the commands for it."""
    advice = f"For that, there is `metarnn {VERBS[entry.name]} {shlex.quote(str(path))}`."
    check.refuse("run", str(path), f"the run of {wanted}; this is one of {entry.name!r}", advice)


def new_folder(name: str, below: Path = Path("runs")) -> Path:
    """A name not yet taken: runs/lm, runs/lm-2, …"""
    count = 1
    while (path := below / (name if count == 1 else f"{name}-{count}")).exists():
        count += 1
    return path


def latest_unfinished(
    kind: str, file: str, unfinished: Callable[[Path], bool], below: Path = Path("runs")
) -> Path:
    """The folder of the latest unfinished run of a kind; a FileNotFoundError where there is none.

    Args:
        kind: what is looked for, as a message calls it
        file: the file that every folder of this kind has, written last when it was last at work
        unfinished: whether the run with this file has work left
    """
    files = [path for path in below.glob(f"*/{file}") if unfinished(path)]
    if not files:
        raise FileNotFoundError(
            f"--resume: no unfinished {kind} in {below}/. Name the folder of one with --out"
        )
    return max(files, key=lambda path: path.stat().st_mtime).parent
