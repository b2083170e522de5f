"""What `metarnn learn` does in its time: measure, search, compare, keep the best."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from metarnn.cells import check
from metarnn.cli import samples, setup, tasks
from metarnn.cli.report import write_report
from metarnn.cli.rules import recorded_rules
from metarnn.cli.search import best_random, indented, print_verdict, write_found
from metarnn.cli.searched import runs_of
from metarnn.cli.study import Study
from metarnn.cli.table import say
from metarnn.cli.tasks import PLACES
from metarnn.graph.files import document
from metarnn.search import Found, Search, SearchOptions, budget
from metarnn.search.known import known_name
from metarnn.search.problem import Problem, Unit
from metarnn.search.ranking import ENOUGH, WRITTEN, best_of, keep_longer, summary
from metarnn.search.verdict import (
    FOUND,
    RANDOM,
    RIVALS,
    SCORES,
    VALID,
    Contender,
    Verdict,
    VerdictOptions,
    judge,
    run_name,
)
from metarnn.tasks.language.model import count_parameters, parse_count, solve_width
from metarnn.tasks.rules import simple_rules
from metarnn.tasks.unit import FILE, META
from metarnn.training import Folder, Settings, config, generators
from metarnn.training import progress as shows
from metarnn.training.metrics import read_lines
from metarnn.training.world import World

RULES = 0.05  # of the time, at most, for simple rules


@dataclass(frozen=True)
class Asked:
    """What was asked for, 0 and "" for what is left to the machine's pace."""

    minutes: float
    params: str
    steps: int
    seeds: int
    candidates: int
    seed: int
    device: str


@dataclass
class Learning:
    """A study from its first measurement to its last line."""

    study: Study
    entry: Any
    chosen: Any
    problem: Problem
    world: World
    show: shows.Progress
    asked: Asked

    def run(self) -> int:
        study = self.study
        with study.stage("simple rules"):  # cached for the end, and for every run of the study
            simple_rules(
                self.problem.whole, self.problem.held_out, study.path, RULES * study.seconds
            )
        if "plan" not in study.about:
            with study.stage("measure"):
                self._plan()
        self.plan = study.about["plan"]
        with study.stage("search"):
            found = self._search()
        with study.stage("random"):
            best = self._random()
        with study.stage("verdict"):
            verdict, units = self._verdict(found, best)
        with study.stage("longer"):
            run, more = self._longer(verdict, units)
        with study.stage("sample"):
            self._conclude(verdict, run, more)
        return 0

    @property
    def searched(self) -> Folder:
        return Folder(self.study.path / "search")

    # What fits into the time.

    def _plan(self) -> None:
        """Measure the pace of an LSTM, and set sizes and the budget of the search."""
        study, sizes = self.study, setup.SIZES[self.entry.name]
        settings = Settings(**tasks.chosen(Settings, self.chosen))
        model = self._made(RIVALS["lstm"], sizes.width)
        pace = budget.measure(self.problem.whole, model, settings)
        verdict = (1 - budget.SEARCH - budget.RANDOM) * study.left
        width = budget.width_within(verdict, pace.update, sizes.width, sizes.enough, sizes.widest)
        parameters = self._size(width)
        options = SearchOptions(**tasks.chosen(SearchOptions, self.chosen))
        options = replace(options, search_width=min(width, 64))
        pace = self._search_pace(options, settings)
        seconds = budget.SEARCH * study.seconds
        options, steps = budget.search_within(seconds, pace, options)
        candidates = steps // options.candidate_steps
        # The clock ends the search, which may be faster than a first measurement makes believe.
        most = self.asked.candidates or budget.CANDIDATES[1]
        units = budget.random_within(budget.RANDOM * study.seconds, pace, options)
        plan = {"parameters": parameters, "random_units": units}
        self.chosen = replace(
            self.chosen,
            steps=most * options.candidate_steps,
            minutes=0.0 if self.asked.candidates else budget.BRED * seconds / 60,
            params=str(parameters),
            warmup=min(self.chosen.warmup, options.candidate_steps // 5),
            random_units=units,
            **tasks.chosen(SearchOptions, options),
        )
        save_search(study, self.entry, self.chosen)
        study.note(plan=plan, parameters=parameters)
        self.show.say(
            f"an update takes {1000 * pace.update:.0f} ms: models of {parameters:,} parameters; "
            f"about {self.asked.candidates or candidates} candidates of "
            f"{options.candidate_steps} updates"
        )

    def _search_pace(self, options: SearchOptions, settings: Settings) -> budget.Pace:
        """The slower of an LSTM, which is often compiled already, and a unit nobody has seen."""
        drawn = self.chosen.chosen().draw(random.Random(self.chosen.seed))
        paces = []
        for unit in (RIVALS["lstm"], self.chosen.chosen().genotype(drawn).cell):
            generators.seed_all(self.chosen.seed)
            model = self.problem.model(unit, options.search_width).to(self.world.device)
            paces.append(budget.measure(self.problem.weights, model, settings))
        return budget.slowest(paces)

    def _size(self, width: int) -> int:
        if self.asked.params:
            return parse_count(self.asked.params)
        with torch.device("meta"):
            return count_parameters(self.problem.judged(RIVALS["lstm"], width).parameters())

    def _made(self, unit: Unit, width: int) -> torch.nn.Module:
        generators.seed_all(self.chosen.seed)
        return self.problem.judged(unit, width).to(self.world.device)

    # The stages.

    def _search(self) -> Found:
        options = SearchOptions(**tasks.chosen(SearchOptions, self.chosen))
        settings = Settings(**tasks.chosen(Settings, self.chosen))
        self.show.say("\nsearch: units are bred, and each is trained for a while")
        search = Search(self.problem, self.chosen.chosen(), settings, options,
                        folder=self.searched, world=self.world, progress=self.show)  # fmt: skip
        search.resume()
        found = search.run()
        write_found(self.searched, found, options)
        name = known_name(found.unit)
        self.show.say(f"found{f', which is {name}' if name else ''}:\n{indented(str(found.unit))}")
        return found

    def _random(self) -> Found:
        count = self.plan["random_units"]
        self.show.say(f"\nrandom search: {count} units, for comparison")
        settings = Settings(**tasks.chosen(Settings, self.chosen))
        options = SearchOptions(**tasks.chosen(SearchOptions, self.chosen))
        return best_random(self.problem, self.chosen.chosen(), settings, options, count,
                           self.searched, self.world, self.show)  # fmt: skip

    def _verdict(self, found: Found, best: Found) -> tuple[Verdict, dict[str, Unit]]:
        """Rounds of all units, one seed each, while there is time; after the first, what came out
        best has a network around it that writes its weights, and takes part too."""
        units: dict[str, Unit] = {
            FOUND: Contender(FILE, found.unit.cell),
            **RIVALS,
            RANDOM: Contender(FILE, best.unit.cell),
        }
        if "steps" not in self.plan:
            asked = {"steps": self.asked.steps, "seeds": self.asked.seeds}
            self.plan |= asked if all(asked.values()) else self._plan_verdict(units)
            self.study.note(plan=self.plan)
        settings, seeds = self._settings(self.plan["steps"]), self.plan["seeds"]
        self.show.say(
            f"\nverdict: {len(units) + 1} units, {self.plan['steps']:,} updates each, "
            f"{seeds} seed{'s' if seeds > 1 else ''} or as many as there is time for"
        )
        began = self.study.left
        verdict = self._judge(units, settings, 1)
        inner = check.one_of("meta", self.plan.setdefault("meta", best_of(verdict)), units)
        self.study.note(plan=self.plan)
        units[f"{WRITTEN}{inner}"] = _written(units[inner])
        for count in range(1, (self.asked.seeds or budget.SEEDS[1]) + 1):
            verdict = self._judge(units, settings, count)
            took, began = began - self.study.left, self.study.left
            if not self.asked.seeds and began - self._reserved < 1.3 * took:
                break
        return verdict, units

    def _plan_verdict(self, units: dict[str, Unit]) -> dict[str, int]:
        """Measure the pace of every unit at its size, and set updates and seeds."""
        sizes = setup.SIZES[self.entry.name]
        settings = Settings(**tasks.chosen(Settings, self.chosen))
        paces = []
        for unit in (*units.values(), Contender(f"{META}gru")):
            width = solve_width(self.plan["parameters"], partial(self.problem.judged, unit))
            model = self._made(unit, width)
            paces.append(budget.measure(self.problem.whole, model, settings, self.problem.held_out))
        left = self.study.left - self._reserved
        steps, seeds = budget.verdict_within(left, paces, sizes.enough, self._most())
        return {"steps": self.asked.steps or steps, "seeds": self.asked.seeds or seeds}

    @property
    def _reserved(self) -> float:
        """Seconds that are kept for the longer training."""
        return 0.0 if self.asked.steps else budget.LONGER * self.study.seconds

    def _most(self) -> int:
        """Updates of a training that are of use."""
        sizes = setup.SIZES[self.entry.name]
        epoch = float(getattr(self.problem.whole, "batches_per_epoch", 0.0)) or sizes.most
        return int(max(min(sizes.most, 60 * epoch), sizes.enough))

    def _settings(self, steps: int) -> Settings:
        every = max(steps // budget.VALIDATIONS, 1)
        own = replace(self.chosen, warmup=min(self.chosen.warmup or steps, steps // 10))
        more = {"validate_every": every, "log_every": max(steps // 40, 1), "save_every": 0}
        return replace(Settings(**tasks.chosen(Settings, own)), **more)

    def _judge(self, units: dict[str, Unit], settings: Settings, seeds: int) -> Verdict:
        verdict = self._trained(units, settings, seeds, self.plan["steps"], "verdict")
        self.study.keep(verdict)
        return verdict

    def _trained(
        self, units: dict[str, Unit], settings: Settings, seeds: int, steps: int, folder: str
    ) -> Verdict:
        return judge(
            self.problem,
            units,
            self.plan["parameters"],
            settings,
            VerdictOptions(seeds, steps),
            folder=self.study.path / folder,
            world=self.world,
            progress=self.show,
            keep=runs_of(self.entry, self.chosen, self.problem),
        )

    def _longer(self, verdict: Verdict, units: dict[str, Unit]) -> tuple[Path, str]:
        """The run to keep, of a longer training of the best unit where that is better, and what is
        to be said of it."""
        best = best_of(verdict)
        valid = verdict[best].values(VALID)
        kept = Path("verdict") / run_name(best, self.chosen.seed + valid.index(min(valid)))
        if "longer" not in self.plan:
            self.plan["longer"] = self._plan_longer(units[best], verdict[best].width)
            self.study.note(plan=self.plan)
        if not (steps := self.plan["longer"]):
            why = "--steps is set" if self.asked.steps else "the time left is too short"
            self._decide("longer", "no longer training", why)
            return kept, ""
        self.show.say(f"\nlonger: {best} once more, {steps:,} updates, for a model to use")
        alone = self._trained({best: units[best]}, self._settings(steps), 1, steps, "longer")
        longer = alone[best].scores[0]
        place = Path("longer") / run_name(best, self.chosen.seed)
        size, unit = validation_size(Folder(self.study.path / place))
        better, why = keep_longer(longer[VALID], valid, size, unit)
        kinds = {True: "the longer training is kept", False: "the longer training is dropped"}
        figures = {"longer": longer[VALID], "short": valid, unit: size}
        self._decide("longer", kinds[better], why, **figures)
        if not better:
            return kept, ""
        metric = verdict.measure.name
        more = f"Trained once more, for {steps:,} updates, it has {metric} {longer[metric]:.4f}."
        return place, more

    def _decide(self, stage: str, decision: str, reason: str, **figures: Any) -> None:
        self.show.say(self.study.decide(stage, decision, reason, **figures))

    def _plan_longer(self, unit: Unit, width: int) -> int:
        if self.asked.steps or self.study.left <= 0:
            return 0
        settings = Settings(**tasks.chosen(Settings, self.chosen))
        model = self._made(unit, width)
        pace = budget.measure(self.problem.whole, model, settings, self.problem.held_out)
        return budget.longer_within(self.study.left, pace, self.plan["steps"], self._most())

    # The end.

    def _conclude(self, verdict: Verdict, run: Path, more: str) -> None:
        study = self.study
        best = best_of(verdict)
        row = verdict[best]
        first = self.chosen.seed
        study.promote(study.path / run)
        means = {each.name: fmean(each.values(VALID)) for each in verdict.rows}
        why = f"lowest mean validation loss over {len(row.scores)} seed(s)"
        self._decide("verdict", f"{best} is kept", why, **means)
        scores = document(study.path / run / SCORES)
        scores.pop(VALID, None)
        steps = self.plan["longer"] if run.parts[0] == "longer" else verdict.steps
        task, most = self.problem.whole, RULES * study.seconds
        rules = recorded_rules(task, verdict.split, study.folder, steps, scores, most)
        words = f"{summary(verdict, best)} {more}".strip()
        if rules is not None and (sentence := rules.sentence(scores, "the model that was kept")):
            first_said = rules.outcome(scores) != "loses to"
            words = f"{sentence} {words}" if first_said else f"{words} {sentence}"
        study.note(
            steps=verdict.steps,
            seeds=[first + k for k in range(len(row.scores))],
            best=best,
            best_run=str(run),
            verdict=words,
        )
        print()
        print_verdict(verdict)
        say(f"\n{words}\n")
        for line in () if rules is None else rules.lines(scores, best):
            say(line)
        for line in samples.lines(self.entry, study.folder):
            say(line)
        say(f"\nThe study is in {study.path}, the model of {best} in it ready to use:")
        for line in samples.commands(self.entry, study.path):
            print(f"  {line}")
        say(f"\nAll of it on a page: {finish(study)}")


def _written(unit: Unit) -> Contender:
    """The same unit, its weights written by a network."""
    assert isinstance(unit, Contender)
    return Contender(META + unit.name, unit.unit)


def finish(study: Study) -> Path:
    """Write the page of a study, and drop the checkpoints of its search; the path of the page."""
    page = study.path / "report.html"
    if not page.exists():
        write_report([study.path])
    for name in ("search", "search/random"):
        Folder(study.path / name).drop_checkpoints()
    return page


def validation_size(folder: Folder) -> tuple[int, str]:
    """How many examples the last validation of a run had, and what these are."""
    for line in reversed(read_lines(folder.metrics)):
        for unit in ENOUGH:
            if f"valid_{unit}" in line:
                return int(line[f"valid_{unit}"]), unit
    return 0, "examples"


def save_search(study: Study, entry: Any, chosen: Any) -> None:
    """Write how the search of a study is set up."""
    folder = Folder(study.path / "search")
    folder.last.parent.mkdir(parents=True, exist_ok=True)
    config.save(folder.config, f"search-{entry.name}", chosen, PLACES)
