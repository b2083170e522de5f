"""`metarnn learn DATA`: find a unit for these data, compare it honestly, leave the best model."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from metarnn.cells import check
from metarnn.cli import setup
from metarnn.cli.learning import Asked, Learning, finish, save_search
from metarnn.cli.searched import Searched, task_config
from metarnn.cli.study import LEARN, Study, fingerprint, machine, versions
from metarnn.graph.files import document
from metarnn.runs import tasks
from metarnn.tasks.language.model import parse_count
from metarnn.tasks.look import Finding, look
from metarnn.tasks.split import Split
from metarnn.training import Folder, config, generators
from metarnn.training import progress as shows
from metarnn.training.interrupt import Interrupted
from metarnn.training.world import World, find_device


def learn(
    data: Annotated[str, tyro.conf.Positional] = "",
    /,
    minutes: float = 5.0,
    task: Literal["auto", "lm", "translation", "classification", "forecasting"] = "auto",
    out: str = "",
    resume: bool = False,
    params: str = "",
    steps: int = 0,
    seeds: int = 0,
    candidates: int = 0,
    seed: int = 0,
    device: str = "auto",
) -> int:
    """Find a recurrent unit for your data, train with it, and compare it honestly with LSTM, GRU,
    the best of random units and one whose weights a network writes, all of one size.

    metarnn learn book.txt --minutes 20
    metarnn learn pairs.tsv; metarnn learn signals_TRAIN.ts; metarnn learn sales.csv

    Args:
        data: a text, pairs (.tsv, .jsonl, two aligned files), labelled sequences (.ts, .npz, .csv,
            .jsonl, folders of images), a CSV of series with dates; or embedded data (pydoc)
        minutes: how long it may take, all in all
        task: what to learn; auto looks at the data and says why
        out: the folder of the study; by default a new one, runs/learn
        resume: go on with the study in --out, or with the latest unfinished one in runs/
        params: parameters of every model, as in 200k; by default what this machine can train
        steps: updates of every training of the verdict; by default what the time allows
        seeds: trainings of each unit; by default as many as the time allows, up to 5
        candidates: units that the search trains; by default what the time allows
        seed: where all randomness begins
        device: where to compute: auto, cpu, cuda
    """
    asked = Asked(minutes, params, steps, seeds, candidates, seed, device)
    path = Path(out) if out else _folder(resume)
    _check(asked)
    try:
        return _learn(data, task, path, resume, asked)
    except KeyboardInterrupt:
        return _stopped(path, 2)
    except Interrupted as stopped:
        return _stopped(path, int(stopped.args[0]) if stopped.args and stopped.args[0] else 2)


def _check(asked: Asked) -> None:
    if not check.number("minutes", asked.minutes) > 0:
        check.refuse("minutes", asked.minutes, "a number above 0")
    if asked.params:
        parse_count(asked.params)
    for name in ("steps", "seeds", "candidates", "seed"):
        check.size(name, getattr(asked, name), least=0)


def _folder(resume: bool) -> Path:
    if not resume:
        return tasks.new_folder("learn")
    return tasks.latest_unfinished("study", LEARN, lambda file: "best_run" not in document(file))


def _stopped(path: Path, number: int) -> int:
    advice = f"metarnn learn --resume --out {shlex.quote(str(path))}"
    print(f"interrupted; all is saved. To go on: {advice}", file=sys.stderr)
    return 128 + number


def _learn(data: str, task: str, path: Path, resume: bool, asked: Asked) -> int:
    study = Study(path, asked.minutes)
    show = shows.progress()
    show.job(lambda report: study.left)
    world = World(device=find_device(asked.device))
    opening: dict[str, Any] = {}
    entry: Any
    begun = resume and study.read()
    if resume and not begun and not data:
        raise FileNotFoundError(f"{path} holds no study to resume: there is no {LEARN} in it")
    data = data or "pydoc"
    if study.finished:
        show.say(f"{path} is finished: its model is ready to use")
        finish(study)
        return 0
    if begun:
        show.say(f"going on with {path}")
        entry, asked = _begun(study)
        chosen = _read(entry, Folder(path / "search"))
    else:
        finding = look(data, task)
        _introduce(finding, show)
        entry = tasks.find(finding.task)
        chosen = _configured(entry, finding, asked)
        opening = _opening(entry, data, finding, asked, world)
    generators.seed_all(chosen.seed)
    problem = entry.problem(task_config(entry, chosen), chosen.structure_share, show)
    with study.folder.locked(resume=resume):
        Split.of(problem.whole).keep(path, chosen.data, begun=not opening)
        if opening:
            save_search(study, entry, chosen)
            study.note(**opening)
        return Learning(study, entry, chosen, problem, world, show, asked).run()


def _begun(study: Study) -> tuple[Any, Asked]:
    """The task of a study, and what was asked for when it began."""
    try:
        entry = tasks.find(study.about["task"])
        asked = config.from_keys(Asked, study.about["budget"], "budget")
        _check(asked)
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{study.path / LEARN} is damaged: {error}") from None
    return entry, asked


def _introduce(finding: Finding, show: shows.Progress) -> None:
    for line in finding.about:
        show.say(line)
    show.say(f"so the task is: {finding.task} (--task would change that)")


def _configured(entry: Any, finding: Finding, asked: Asked) -> Any:
    """The configuration of a search on these data; its budget comes later."""
    kind = Searched.of(entry)
    preset = next(iter(entry.presets))
    limits = {"steps": 1, "epochs": 0.0, "minutes": 0.0, "patience": 0, "save_every": 0}
    own = {"seed": asked.seed, "device": asked.device}
    keys = {**entry.presets[preset], **setup.settings(finding), **limits, **own}
    return config.from_keys(kind.kind, keys, "metarnn learn")


def _read(entry: Any, folder: Folder) -> Any:
    keys = config.read(folder.config)
    keys.pop("task", None)
    return config.from_keys(Searched.of(entry).kind, keys, str(folder.config))


def _opening(entry: Any, data: str, finding: Finding, asked: Asked, world: World) -> dict[str, Any]:
    return {
        "task": entry.name,
        "command": shlex.join(["metarnn", *sys.argv[1:]]),
        "data": {"path": data, "sha256": fingerprint(finding.data), "about": list(finding.about)},
        "versions": versions(),
        "machine": machine(world.device),
        "budget": vars(asked),
        "stages": [],
    }
