"""From data to a model: contenders race, the winner is trained to the end, and accounted for."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import torch

from metarnn.cells import Cell, check
from metarnn.graph import read, save, trace_cell
from metarnn.graph.files import document, make_folder
from metarnn.runs import tasks
from metarnn.runs.rules import recorded_rules
from metarnn.runs.tasks import Job
from metarnn.search import library
from metarnn.study import account, setup
from metarnn.study.contenders import GROWING, GROWN, PORTFOLIOS, Contender
from metarnn.study.pace import seconds_per_update
from metarnn.study.race import Race
from metarnn.study.runner import Runner
from metarnn.study.stability import QUICK, instability
from metarnn.study.study import LEARN, RACE, UNITS, Study, fingerprint, machine, versions
from metarnn.tasks.language.model import count_parameters, parse_count
from metarnn.tasks.look import Finding, look
from metarnn.tasks.rules import simple_rules
from metarnn.tasks.split import Split
from metarnn.tasks.task import measure_of
from metarnn.tasks.unit import unit as make_unit
from metarnn.training import Folder, Settings, config
from metarnn.training import progress as shows
from metarnn.training.progress import Contestant, Progress, clock
from metarnn.training.world import World, find_device

RULES = 0.03  # of the time, at most, for simple rules
TEST = 0.06  # of the time, at most, for the score on held-out data
CLOSING = 0.05  # of the time, for the page, samples and whatever else is done at the end
WIDTH = 64  # of a user's cell when it is traced; each model has its own


@dataclass(frozen=True)
class Options:
    """What a study was asked for; 0 and "" leave it to the machine's pace."""

    minutes: float = 5.0
    params: str = ""
    steps: int = 0
    contenders: int = 0
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        if not check.number("minutes", self.minutes) > 0:
            check.refuse("minutes", self.minutes, "a number above 0")
        if self.params:
            parse_count(self.params)
        for name in ("steps", "contenders", "seed"):
            check.size(name, getattr(self, name), least=0)


def learn(
    data: str = "",
    *,
    minutes: float = 5.0,
    task: str = "auto",
    out: str | Path = "",
    resume: bool = False,
    params: str = "",
    steps: int = 0,
    contenders: int = 0,
    units: Sequence[str | Path | type[Cell]] = (),
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> Study:
    """Learn the best model for some data that so many minutes can buy.

        study = metarnn.learn("book.txt", minutes=10)
        print(study.summary)
        study.generate("Once upon a time")

    Recurrent units, each with its own learning rate, race at their final size; whoever stays goes
    on from its own weights, and the winner is trained to the end of the time.

    Args:
        data: a file or folder, or the name of embedded data; by default pydoc
        minutes: how long it may take, all in all
        task: lm, translation, classification or forecasting; auto looks at the data
        out: the folder of the study; by default a new one, runs/learn
        resume: go on with the study in `out`, or with the latest unfinished one in runs/
        params: parameters of every model, as in "200k"; by default those of the task
        steps: updates of the winner's training, in place of minutes: exactly reproducible
        contenders: how many take part; by default as many as the time allows
        units: more contenders: names of units (indrnn, meta-lstm, found/ptb-products), files with
            a cell's graph (cell.json), or classes of cells
        seed: where all randomness begins
        device: auto, cpu or cuda
        progress: where to show how it goes; by default standard error
    """
    show = shows.progress() if progress is None else progress
    path = Path(out) if out else _folder(resume)
    options = Options(minutes, params, steps, contenders, seed, device)
    study = Study(path, minutes)
    begun = resume and study.read()
    if resume and not begun and not data:
        raise FileNotFoundError(f"{path} holds no study to resume: there is no {LEARN} in it")
    if study.finished:
        show.say(f"{path} is finished: its model is ready to use")
        return study
    if begun:
        show.say(f"going on with {path}")
        entry, options, base = _begun(study)
    else:
        finding = look(data or "pydoc", task)
        for line in finding.about:
            show.say(line)
        show.say(f"so the task is: {finding.task} (--task would change that)")
        entry = tasks.find(finding.task)
        base = configured(entry, finding, options)
        study.about |= _opening(data or "pydoc", finding, options)
    if not options.steps:
        show.job(lambda report: study.left)
    with study.folder.locked(resume=resume):
        if not begun:
            study.about["units"] = [_keep_unit(unit, path) for unit in units]
            study.note(base=tasks.stored(base))
        _Learning(study, entry, base, options, show).run()
    return Study.load(path)


def _folder(resume: bool) -> Path:
    if not resume:
        return tasks.new_folder("learn")
    return tasks.latest_unfinished("study", LEARN, lambda file: "best" not in document(file))


def _begun(study: Study) -> tuple[Any, Options, Any]:
    """The task of a study, what it was asked for when it began, and its common settings."""
    try:
        options = config.from_keys(Options, study.about["budget"], "budget")
        entry = tasks.find(study.about["task"])
        return entry, options, config.from_keys(entry.kind, study.about["base"], "base")
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{study.path / LEARN} is damaged: {error}") from None


def configured(entry: Any, finding: Finding, options: Options) -> Any:
    """The settings that all contenders share: the task's own, and what follows from the data."""
    preset = next(iter(entry.presets.values()))
    own = {"seed": options.seed, "device": options.device, "params": options.params}
    keys = {**preset, **setup.settings(finding), **setup.SCHEDULE, **own}
    return config.from_keys(entry.kind, keys, "metarnn learn")


def _opening(data: str, finding: Finding, options: Options) -> dict[str, Any]:
    return {
        "task": finding.task,
        "command": shlex.join(["metarnn", *sys.argv[1:]]),
        "data": {"path": data, "sha256": fingerprint(finding.data), "about": list(finding.about)},
        "versions": versions(),
        "machine": machine(find_device(options.device)),
        "budget": vars(options),
        "stages": [],
    }


def _keep_unit(unit: str | Path | type[Cell], folder: Path) -> str:
    """The name of a unit of the user's. What no name stands for is kept as a file in the folder of
    the study."""
    if isinstance(unit, str | Path):
        named = str(unit)
        if named.startswith(library.PREFIX):
            unit = library.path(named)
        elif not named.endswith(".json"):
            make_unit(named, WIDTH, WIDTH)  # refuses what is no name
            return named
        graph, name = read(unit), Path(unit).stem
    else:
        graph, name = trace_cell(unit(WIDTH, WIDTH)), unit.__name__.lower()
    make_folder(folder / UNITS)
    save(graph, folder / UNITS / f"{name}.json")
    return name


class _Learning:
    """The work of a study, from its data to its last line."""

    def __init__(
        self, study: Study, entry: Any, base: Any, options: Options, show: Progress
    ) -> None:
        self.study, self.entry, self.base, self.options = study, entry, base, options
        self.show = show
        self.world = World(device=find_device(options.device))
        self.scoring = 0.0  # seconds of the last validation and of the score on held-out data

    def run(self) -> None:
        study = self.study
        begun = "race" in study.about
        with study.stage("data"):
            self.data = self.entry.load(self.base, None, self.show)
            if not begun and self.entry.name == "lm":
                size, device = len(self.data.vocabulary), self.world.device.type
                self.base = setup.for_vocabulary(self.base, size, device)
            plain = self.entry.job(self.base, self.data)
            if not begun:
                self._regularise(plain)
                self._account_for_settings()
            self.split = Split.of(plain.task)
            self.split.keep(study.path, self.base.data, begun=begun)
            self.held_out = self.entry.held_out(plain)
        with study.stage("simple rules"):  # cached for the end, and for every run of the study
            simple_rules(plain.task, self.held_out, study.path, RULES * study.seconds)
        with study.stage("race"):
            race = self._race(plain)
            winner = race.run()
        with study.stage("account"):
            self._account(self._stable(race, winner))

    def _regularise(self, plain: Job[Any]) -> None:
        """Choose what depends on how often the training data will be read, by the pace here."""
        per_epoch = float(getattr(plain.task, "batches_per_epoch", 0.0))
        steps = float(self.options.steps)
        if not per_epoch or "passes" in self.study.about:  # chosen before the study was stopped
            return
        if not steps:
            own = Settings(**tasks.chosen(Settings, replace(self.base, steps=1000)))
            steps = 0.7 * self.study.left / seconds_per_update(plain.task, plain.model, own)
        passes = steps / per_epoch
        self.base = setup.regularised(self.entry.name, self.base, passes)
        self.study.note(base=tasks.stored(self.base), passes=passes)

    def _account_for_settings(self) -> None:
        """Say which settings follow from the data, and why."""
        preset = next(iter(self.entry.presets.values()))
        usual = {**vars(self.entry.kind()), **preset}
        for name, reason in setup.REASONS.items():
            value = getattr(self.base, name, None)
            if value is not None and value != usual[name]:
                self._decide(f"setting {name}", str(value), reason)

    # The race.

    def _race(self, plain: Job[Any]) -> Race:
        per_epoch, name = float(getattr(plain.task, "batches_per_epoch", 0.0)), self.entry.name
        useful = max(setup.EPOCHS[name] * per_epoch, setup.UPDATES[name]) if per_epoch else inf
        return Race(
            self.study,
            self._runner,
            self._contenders(plain),
            left=self._left,
            useful=useful,
            steps=self.options.steps,
            judgement=setup.judgement(name, plain.task),
            refit=setup.refit(name, plain.task, self.held_out),
            progress=self.show,
            unstable=self._unstable,
        )

    def _contenders(self, plain: Job[Any]) -> list[Contender]:
        """Those of the user first, then the portfolio of the task."""
        size = self.options.params or str(count_parameters(plain.model.parameters()))
        units = self.study.path / UNITS
        files = {name: units / f"{name}.json" for name in self.study.about["units"]}
        own = [
            Contender(name, {"cell": str(file) if file.exists() else name, "params": size})
            for name, file in files.items()
        ]
        every = [*own, *PORTFOLIOS[self.entry.name]]
        grown = GROWN.get(self.entry.name, ()) if self.options.minutes >= GROWING else ()
        return [*every[: self.options.contenders or len(every)], *grown]

    def _runner(self, contender: Contender, length: float) -> Runner:
        place = self.study.path / RACE / contender.folder
        runner = Runner(
            self.entry,
            self.base,
            contender,
            self.data,
            self.split,
            place,
            updates=bool(self.options.steps),
            end=length,
            world=self.world,
            progress=Contestant(self.show, f"{contender.name}:"),
        )
        runner.start()
        if not contender.settings.get("refit"):  # its validation scores compare with none
            places = self.study.about.get("contenders", {})
            self.study.note(contenders={**places, contender.name: contender.folder})
        if not self.scoring:
            runner.time_validation()
            testing = runner.seconds_per_example() * runner.job.task.amount(self.held_out)
            most = TEST * self.study.seconds
            self.scoring = min(testing, most) + runner.validation_seconds
        return runner

    def _left(self) -> float:
        """Seconds that are left for training."""
        return max(self.study.left - self.scoring - CLOSING * self.study.seconds, 0.0)

    def _stable(self, race: Race, winner: Runner) -> Runner:
        """The winner, or the best after it that is stable on long input."""
        ranked = sorted(race.trained, key=lambda runner: (runner is not winner, runner.best))
        for runner in ranked:
            runner.load()
            if not (reason := instability(runner.job)):
                if runner is not winner:
                    reason = "the lowest validation loss of those that are stable"
                    self._decide("winner", f"{runner.name} is kept", reason)
                return runner
            self._decide(f"stability of {runner.name}", "unstable", reason)
        winner.load()
        reason = "none of the others is stable either"
        self._decide("winner", f"{winner.name} is kept", reason)
        return winner

    def _unstable(self, runner: Runner) -> str:
        """Why a contender in training is not to be ranked by its score so far, "" if nothing."""
        with runner.averaged():
            return instability(runner.job, QUICK)

    # The end.

    def _account(self, winner: Runner) -> None:
        """Score the winner on held-out data, and make its run that of the study."""
        study, split = self.study, self.held_out
        study.promote(winner.folder.path)
        where = self._choose_test_examples(winner)
        task = study.scored(winner.job.task, split)
        with shows.evaluating(self.show, f"evaluating {split}"), torch.no_grad():
            scores = task.evaluate(winner.job.model.eval(), split)
        at = winner.trainer.at
        sampled = task is not winner.job.task
        rules = recorded_rules(
            task, split, study.folder, at.best_step, scores,
            RULES * study.seconds if sampled else 0.0,  # all others are cached
            sampled=sampled,
        )  # fmt: skip
        reasons = {each["stage"]: each["reason"] for each in study.decisions}
        measure = measure_of(task, scores)
        trained = (at.elapsed, at.step)
        study.note(
            scores=scores,
            split=split,
            parameters=winner.parameters,
            steps=at.step,
            trained={"seconds": round(at.elapsed, 1), "updates": at.step},
            seeds=[self.options.seed],
            verdict=account.summary(
                winner.name,
                trained,
                scores,
                measure,
                where,
                reasons["winner"],
                rules,
                refit=winner.job.config.refit,
            ),
            best=winner.name,
            best_run=f"{RACE}/{winner.contender.folder}",
        )
        for place in (study.path / RACE).iterdir():
            Folder(place).drop_checkpoints()
            Folder(place).model.unlink(missing_ok=True)

    def _choose_test_examples(self, winner: Runner) -> str:
        """Score a sample of the held-out data where all of it would take too long; say which."""
        task, split = winner.job.task, self.held_out
        left = self.study.left - CLOSING * self.study.seconds  # a race may have taken longer
        most = min(TEST * self.study.seconds, max(left, 0.5 * TEST * self.study.seconds))
        where = split if split == "test" else f"{split}, which chose it, for there is no test"
        amount = task.amount(split)
        seconds = amount * winner.seconds_per_example()
        if self.options.steps or seconds <= most:
            return where
        few = max(int(amount * most / seconds), 1)
        self.study.note(sample=few)
        what = f"a fixed sample of {few:,} of {amount:,} {setup.COUNTED[self.entry.name]}"
        self._decide("test", f"scored on {what}", f"all would take {clock(seconds)}")
        return f"{where}, {what}"

    def _decide(self, stage: str, decision: str, reason: str, **figures: Any) -> None:
        self.show.say(self.study.decide(stage, decision, reason, **figures))
