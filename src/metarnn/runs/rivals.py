"""LSTM and GRU of a verdict, trained on the GPU while a search keeps the cores busy."""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from metarnn.runs import searched, tasks
from metarnn.search.verdict import RIVALS, VerdictOptions, judge
from metarnn.search.workers import end, ends_with_parent
from metarnn.training import Folder, Settings, config
from metarnn.training import world as worlds
from metarnn.training.interrupt import Interrupted


@contextmanager
def beside(task: str, folder: Folder) -> Generator[BaseProcess]:
    """A process that trains them into the folder of a search, whose verdict finds them there.

    Should it fail, the verdict trains them itself, and says why it cannot.
    """
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_train, args=(task, folder.path), daemon=True)
    process.start()
    try:
        yield process
    finally:
        end([process])


def _train(task: str, path: Path) -> None:
    ends_with_parent()
    torch.set_num_threads(1)  # the other cores have work to do
    with suppress(Interrupted):
        train(task, path)


def train(task: str, path: Path) -> None:
    """Train LSTM and GRU as the verdict of the search in a folder would."""
    folder, entry = Folder(path), tasks.find(task)
    keys = config.read(folder.config)
    keys.pop("task", None)
    chosen: Any = config.from_keys(searched.Searched.of(entry).kind, keys, str(folder.config))
    with worlds.joined(chosen.device) as world:
        own = searched.task_config(entry, chosen)
        problem = searched.verified_problem(task, own, chosen.structure_share, path)
        judge(
            problem,
            RIVALS,
            searched.size_of(problem, chosen),
            Settings(**tasks.chosen(Settings, chosen)),
            VerdictOptions(**tasks.chosen(VerdictOptions, chosen)),
            folder=folder.path / searched.VERDICT,
            world=world,
            keep=searched.runs_of(entry, chosen, problem),
        )
