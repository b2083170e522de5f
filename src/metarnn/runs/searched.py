"""What a search is made from: a task's flags with its own, and the data in their parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from metarnn.cells import check
from metarnn.runs import tasks
from metarnn.runs.tasks import Job
from metarnn.search import DartsSpace, SearchOptions, Space, UnitSpace
from metarnn.search.problem import Problem, Unit
from metarnn.search.unit_space import OPERATIONS, SLOTS
from metarnn.search.verdict import RIVALS, Keep, VerdictOptions
from metarnn.tasks.language.model import count_parameters, parse_count
from metarnn.tasks.split import Split
from metarnn.tasks.unit import name_of
from metarnn.training import Folder, Settings, generators
from metarnn.training.progress import SILENT, Progress

VERDICT = "verdict"  # in the folder of a search, the trainings of its verdict
# What a search takes instead of a preset's own: minutes, not hours, and no more validations than
# the verdict needs.
BUDGET = {"steps": 0, "epochs": 0.0, "minutes": 3.0, "patience": 0, "save_every": 200}


@dataclass(frozen=True)
class SpaceOptions:
    """Where to search."""

    space: Literal["unit", "darts"] = "unit"
    """unit, of which LSTM and GRU are points, or that of DARTS-RNN."""
    slots: tuple[str, ...] = SLOTS
    """unit: the nodes, lin or mix each, in their order."""
    activations: tuple[str, ...] = UnitSpace.activations
    """Activations to choose from."""
    operations: tuple[str, ...] = OPERATIONS
    """unit: operations of a mix node to choose from."""
    states: int = 2
    """unit: 1 for a state h, 2 for h and c."""
    matrices: int = 0
    """unit: the most matrices a unit may have (an LSTM has 8, a GRU 6); 0 for any number."""
    nodes: int = 8
    """darts: how many nodes."""

    def chosen(self) -> Space:
        if self.space == "darts":
            return DartsSpace(self.nodes, self.activations)
        return UnitSpace(
            self.slots, self.activations, self.operations, self.states, matrices=self.matrices
        )


@dataclass(frozen=True)
class SideOptions:
    """Who searches."""

    workers: int = 0
    """random, evolution, polish: try so many units at once, each on one core in a process of its
    own; --device is then for finalists and the verdict. 0 tries one after the other, there."""

    def __post_init__(self) -> None:
        check.size("workers", self.workers, least=0)


@dataclass(frozen=True)
class Searched:
    """A task as something to search: its flags, and those of a search."""

    name: str
    kind: type
    presets: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, entry: Any) -> Searched:
        bases = (SpaceOptions, SideOptions, SearchOptions, VerdictOptions, entry.kind)

        def post_init(self: Any) -> None:
            for base in bases:
                getattr(base, "__post_init__", lambda self: None)(self)

        command = f"metarnn search {entry.name}"
        about = (
            f"Find a unit for {entry.about}.\n\n{command} --data FILE --minutes 10\n\n"
            f"{command} --strategy darts --params 100k --seeds 5 --out runs/found"
        )
        namespace = {"__post_init__": post_init, "__doc__": about}
        kind = dataclasses.make_dataclass(
            "SearchConfig", [], bases=bases, frozen=True, namespace=namespace
        )
        presets = {name: {**preset, **BUDGET} for name, preset in entry.presets.items()}
        return cls(f"search-{entry.name}", kind, presets)


def task_config(entry: Any, chosen: Any) -> Any:
    """The task's own part of a search's configuration. Where both have a setting of one name, it is
    the search's: `--strategy` is how to search, and a forecaster keeps its default."""
    kinds = (SpaceOptions, SideOptions, SearchOptions, VerdictOptions)
    taken = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    return entry.kind(**tasks.chosen(entry.kind, chosen, *taken))


def problem_of(name: str, own: Any, share: float, show: Progress = SILENT) -> Problem:
    """The data of a task in their parts; the same in every process."""
    generators.seed_all(own.seed)
    entry: Any = tasks.find(name)
    return entry.problem(own, share, show)


def verified_problem(name: str, own: Any, share: float, folder: Path) -> Problem:
    """The same in another process; refused where data differ from those of the stored split."""
    problem = problem_of(name, own, share)
    Split.of(problem.whole).verify(folder, str(own.data))
    return problem


def size_of(problem: Problem, chosen: Any) -> int:
    """The size of all models of the verdict: as asked for, or that of an LSTM of --width."""
    if chosen.params:
        return parse_count(chosen.params)
    with torch.device("meta"):
        return count_parameters(problem.model(RIVALS["lstm"], chosen.width).parameters())


def runs_of(entry: Any, chosen: Any, problem: Problem) -> Keep:
    """What makes each training of a verdict a run of its task."""
    split = Split.of(problem.whole)  # one for all seeds

    def keep(folder: Folder, unit: Unit, width: int, settings: Settings, model: nn.Module) -> None:
        keys = {**tasks.chosen(Settings, settings), **problem.decided}
        keys |= {"cell": name_of(unit), "width": width, "params": ""}
        own = replace(task_config(entry, chosen), **keys)
        split.keep(folder.path, own.data, begun=folder.last.exists())
        tasks.keep_settings(folder.config, entry.name, own)
        entry.save(Job(own, problem.whole, model), folder)

    return keep
