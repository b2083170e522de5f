"""`metarnn train TASK`: from data to a run folder."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import tyro

from metarnn.cells import check
from metarnn.cli.table import say
from metarnn.graph.files import write, write_document
from metarnn.runs import tasks
from metarnn.runs.rules import recorded_rules
from metarnn.runs.tasks import PLACES, Common, Entry, Job
from metarnn.tasks.limits import check_limits
from metarnn.tasks.split import Split
from metarnn.training import Folder, FolderError, Result, Trainer, config
from metarnn.training import progress as shows
from metarnn.training import world as worlds
from metarnn.training.progress import clock, printable, scores_in_words
from metarnn.training.world import World

MARK = ".torchrun"
ENDED = "ended.json"  # in the folder of a training that reached its limit
LIMITS = ("--steps", "--epochs", "--minutes")


def train(arguments: Sequence[str]) -> int:
    """Run `metarnn train` with these arguments; return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: metarnn train TASK [flags]; `metarnn train TASK --help` lists them\n")
        for name in tasks.TASKS:
            print(f"  {name:<14} {tasks.find(name).about}")
        return 0
    name, *flags = arguments
    entry = tasks.find(name)
    chosen = parse(entry, flags)
    with worlds.joined(chosen.device) as world:
        return _train(entry, chosen, world)


def parse(entry: Any, flags: Sequence[str], program: str = "") -> Any:
    """The configuration: what the preset says, changed by the file, changed by the flags.

    A run that is resumed has its own config.toml in the place of the first two. A flag that limits
    the training takes the place of all limits there: who says --steps 100 wants 100 steps.
    """
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for place in PLACES:
        early.add_argument(f"--{place}", **_kind(place))
    found, _ = early.parse_known_args(list(flags))
    base: dict[str, Any] = {}
    preset = found.preset or next(iter(entry.presets))
    base |= entry.presets[check.one_of("preset", preset, entry.presets)]
    source = f"preset {preset}"
    if found.config:
        base |= _keys(entry, Path(found.config), edited=True)
        source = found.config
    if found.resume:
        folder = Folder(found.out or _latest(entry.name))
        base["out"] = str(folder)
        if folder.config.exists():
            base = {**_keys(entry, folder.config), "out": str(folder)}
            source = str(folder.config)
    if any(flag.split("=")[0] in LIMITS for flag in flags):
        base = {key: value for key, value in base.items() if f"--{key}" not in LIMITS}
    default = config.from_keys(entry.kind, base, source)
    options = tyro.cli(
        entry.kind,
        default=dataclasses.replace(default, preset=preset),
        args=list(flags),
        prog=program or f"metarnn train {entry.name}",
    )
    check_limits(options)
    return options


def _latest(task: str) -> Path:
    """The latest run of a task, or search for it, that has not ended."""
    ended = "verdict.json" if task.startswith("search-") else ENDED

    def unfinished(file: Path) -> bool:
        return config.read(file).get("task") == task and not (file.parent / ended).exists()

    return tasks.latest_unfinished(f"run of {task}", "config.toml", unfinished)


def _kind(place: str) -> dict[str, Any]:
    return {"action": "store_true"} if place == "resume" else {"default": ""}


def _keys(entry: Any, path: Path, *, edited: bool = False) -> dict[str, Any]:
    keys = config.read(path, edited=edited)
    if (task := keys.pop("task", entry.name)) != entry.name:
        check.refuse("task", task, f"{entry.name!r}, in {path}")
    return keys


def _torchrun() -> str:
    """What tells one call of torchrun from another, "" without it: the same after a restart."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return f"{name} {os.getppid()}" if name == "none" else name


def _started_anew(folder: Folder) -> bool:
    """Whether torchrun began the run in this folder, and starts us anew since a worker died."""
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        return False
    mark = folder.path / MARK
    return mark.exists() and mark.read_text(encoding="utf-8") == _torchrun()


def _train(entry: Entry[Any], chosen: Common, world: World) -> int:
    if world.size > 1 and not chosen.out:
        check.refuse("out", "", "a folder: a worker that is started anew must find its run")
    folder = Folder(chosen.out or tasks.new_folder(entry.name))
    resume = world.tell(chosen.resume or _started_anew(folder))
    if world.is_first and not resume and folder.exists():
        raise FolderError(_taken(folder))
    known = folder if resume else None
    # What is prepared once and kept, such as a large text numbered, is not prepared by all at once.
    show = shows.progress() if world.is_first else shows.SILENT
    job = tasks.prepare(entry, chosen, known, show) if world.is_first else None
    world.tell(None)
    job = tasks.prepare(entry, chosen, known) if job is None else job
    if getattr(chosen, "refit", False) and entry.held_out(job) == "valid":
        why = "They have none, and a score on what a model was trained on tells nothing."
        check.refuse("refit", True, "data with a part for the test, as with --split 80/10/10", why)
    trainer = Trainer(job.task, job.model, job.config, folder=folder, world=world, progress=show)
    with folder.locked(resume=resume) if world.is_first else nullcontext():
        resumed = resume and trainer.resume()  # before config.toml changes: it may not fit
        if world.is_first:
            if _torchrun():
                write(folder.path / MARK, _torchrun())
            (folder.path / ENDED).unlink(missing_ok=True)
            data = str(getattr(job.config, "data", ""))
            Split.of(job.task).keep(folder.path, data, begun=resumed)
            tasks.keep_settings(folder.config, entry.name, job.config)
            entry.save(job, folder)
        _introduce(entry, job, folder, trainer, show)
        if resumed:
            show.say(f"going on from step {trainer.at.step}")
        try:
            result = trainer.fit()
        except OSError as error:
            if not folder.last.parent.is_dir():
                raise OSError(
                    f"{folder.last.parent} was removed while it was being trained into, and what "
                    "was saved there with it. Train anew"
                ) from error
            raise OSError(
                f"{error}. Nothing saved before is lost: {_go_on(entry, folder)}"
            ) from None
        return _conclude(entry, job, folder, result, world, show)


def _introduce(
    entry: Entry[Any], job: Job[Any], folder: Folder, trainer: Trainer, show: shows.Progress
) -> None:
    size = sum(weight.numel() for weight in job.model.parameters())
    where = f"{trainer.world.size} × " if trainer.world.size > 1 else ""
    show.say(f"{entry.name}: {size:,} parameters, on {where}{trainer.world.device}, into {folder}")


def _conclude(
    entry: Entry[Any],
    job: Job[Any],
    folder: Folder,
    result: Result,
    world: World,
    show: shows.Progress,
) -> int:
    if not world.is_first:
        return 128 + result.signal if result.signal else 0
    if result.reason == "interrupted":
        name = signal.Signals(result.signal).name
        told = f"{name}: saved at step {result.step}. {_go_on(entry, folder)}"
        print(printable(told), file=sys.stderr)
        return 128 + result.signal
    ended = {"reason": result.reason, "step": result.step}
    write_document(folder.path / ENDED, ended)
    say(f"ended after {result.step:,} steps, {clock(result.elapsed)} ({result.reason})")
    job.model.eval()
    split = entry.held_out(job)
    with shows.evaluating(show, f"evaluating {split}"):
        scores = job.task.evaluate(job.model, split)
    rules = recorded_rules(job.task, split, folder, result.best_step, scores)
    if rules is not None and (sentence := rules.sentence(scores)):
        say(sentence)
    say(f"{split}, with the weights of step {result.best_step:,}: {scores_in_words(scores)}")
    for line in () if rules is None else rules.lines(scores):
        say(line)
    for line in entry.details(job, scores):
        say(line)
    say(f"saved in {folder}: metarnn evaluate {shlex.quote(str(folder))}")
    return 0


def _go_on(entry: Entry[Any], folder: Folder) -> str:
    return f"To go on: metarnn train {entry.name} --resume --out {shlex.quote(str(folder))}"


def _taken(folder: Folder) -> str:
    return f"{folder} holds a run already. Continue it with --resume, or give another --out"
