"""`metarnn search TASK`: find a unit for a task, and say how good it is."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from multiprocessing.process import BaseProcess
from statistics import fmean
from typing import Any

from metarnn.cells import check
from metarnn.cli.table import print_table, say
from metarnn.cli.train import parse
from metarnn.graph import save, svg, text
from metarnn.graph.files import make_folder, write, write_document
from metarnn.runs import tasks
from metarnn.runs.rivals import beside
from metarnn.runs.searched import (
    VERDICT,
    Searched,
    problem_of,
    runs_of,
    size_of,
    task_config,
    verified_problem,
)
from metarnn.search import Found, Search, SearchOptions, Space
from metarnn.search.problem import Problem, Unit
from metarnn.search.verdict import (
    FOUND,
    RANDOM,
    RIVALS,
    Contender,
    Verdict,
    VerdictOptions,
    judge,
)
from metarnn.search.workers import Workers
from metarnn.tasks.rules import simple_rules
from metarnn.tasks.split import Split
from metarnn.tasks.unit import FILE
from metarnn.training import Folder, Settings
from metarnn.training import progress as shows
from metarnn.training import world as worlds
from metarnn.training.interrupt import Interrupted
from metarnn.training.progress import clock, printable
from metarnn.training.world import World


def search(arguments: Sequence[str]) -> int:
    """Run `metarnn search` with these arguments; return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: metarnn search TASK [flags]; `metarnn search TASK --help` lists them\n")
        for name, entry in searchable().items():
            print(f"  {name:<14} {entry.about}")
        return 0
    name, *flags = arguments
    tasks.find(name)  # which knows what was meant by a name that is none
    entry = searchable().get(name)
    if entry is None:
        check.refuse("task", name, f"one whose data can be searched on: {[*searchable()]}")
    chosen = parse(Searched.of(entry), flags, f"metarnn search {name}")
    with worlds.joined(chosen.device) as world:
        return _search(entry, chosen, world)


def searchable() -> dict[str, Any]:
    """The tasks that say how their data are parted for a search."""
    entries = {name: tasks.find(name) for name in tasks.TASKS}
    return {name: entry for name, entry in entries.items() if hasattr(entry, "problem")}


def _search(entry: Any, chosen: Any, world: World) -> int:
    if world.size > 1 and not chosen.out:
        check.refuse("out", "", "a folder: all processes must know it")
    if chosen.workers and world.size > 1:
        check.refuse("workers", chosen.workers, "0 where several processes train together")
    if chosen.workers and chosen.data == "-":
        check.refuse("data", "-", "a file, with --workers: each of them reads it")
    folder = Folder(chosen.out or tasks.new_folder(f"search-{entry.name}"))
    show = shows.progress() if world.is_first else shows.SILENT
    problem = problem_of(entry.name, task_config(entry, chosen), chosen.structure_share, show)
    settings = Settings(**tasks.chosen(Settings, chosen))
    with folder.locked(resume=chosen.resume) if world.is_first else nullcontext():
        world.tell(None)
        if world.is_first:
            Split.of(problem.whole).keep(folder.path, chosen.data, begun=folder.last.exists())
            tasks.keep_settings(folder.config, f"search-{entry.name}", chosen)
        try:
            with (
                _workers(entry, chosen, folder) as workers,
                _rivals(entry, chosen, folder, world) as rivals,
            ):
                return _run(entry, chosen, problem, settings, folder, world, show, workers, rivals)
        except Interrupted as stopped:
            number = int(stopped.args[0]) if stopped.args and stopped.args[0] else 2
            if world.is_first:
                advice = f"metarnn search {entry.name} --resume --out {shlex.quote(str(folder))}"
                print(f"interrupted; all is saved. To go on: {advice}", file=sys.stderr)
            return 128 + number


def _workers(entry: Any, chosen: Any, folder: Folder) -> AbstractContextManager[Workers | None]:
    if not chosen.workers:
        return nullcontext()
    settings = (entry.name, task_config(entry, chosen), chosen.structure_share)
    return Workers(partial(verified_problem, *settings, folder.path), chosen.workers)


def _rivals(
    entry: Any, chosen: Any, folder: Folder, world: World
) -> AbstractContextManager[BaseProcess | None]:
    """What uses a GPU while workers search on the cores beside it."""
    if not chosen.workers or world.device.type != "cuda":
        return nullcontext()
    return beside(entry.name, folder)


def _run(
    entry: Any,
    chosen: Any,
    problem: Problem,
    settings: Settings,
    folder: Folder,
    world: World,
    show: shows.Progress,
    workers: Workers | None,
    rivals: BaseProcess | None,
) -> int:
    space, options = chosen.chosen(), SearchOptions(**tasks.chosen(SearchOptions, chosen))
    budget = size_of(problem, chosen)
    show.say(f"searching by {options.strategy}, into {folder}")
    units_judged = len(RIVALS) + 1 + (options.strategy != "random")
    judged = units_judged * chosen.seeds * chosen.verdict_steps
    drawn = chosen.random_units * options.candidate_steps if options.strategy != "random" else 0
    show.job(partial(_left, drawn + judged))
    found = _found(Search(problem, space, settings, options, folder=folder, world=world,
                          progress=show, workers=workers), chosen.resume)  # fmt: skip
    if world.is_first:
        write_found(folder, found, options)
        print(f"found after {found.steps:,} steps:\n{indented(str(found.unit))}\n")
    units: dict[str, Unit] = {FOUND: Contender(FILE, found.unit.cell), **RIVALS}
    if options.strategy != "random":
        show.say(f"random search, of {chosen.random_units} units, for comparison")
        show.job(partial(_left, judged))
        best = best_random(
            problem, space, settings, options, chosen.random_units, folder, world, show, workers
        )
        units[RANDOM] = Contender(FILE, best.unit.cell)
    show.job(None)
    if workers is not None:
        workers.close()
    if rivals is not None:
        if rivals.is_alive():
            show.say("LSTM and GRU are still being trained")
        rivals.join()
    verdict = judge(
        problem,
        units,
        budget,
        settings,
        VerdictOptions(**tasks.chosen(VerdictOptions, chosen)),
        folder=folder.path / VERDICT,
        world=world,
        progress=show,
        keep=runs_of(entry, chosen, problem),
    )
    if world.is_first:
        write_document(folder.path / "verdict.json", verdict.as_dict())
        _print_judged(problem, verdict, folder)
        data, cell = (shlex.quote(str(each)) for each in (chosen.data, folder.path / "cell.json"))
        say(f"saved in {folder}: metarnn train {entry.name} --data {data} --cell {cell}")
    return 0


def _print_judged(problem: Problem, verdict: Verdict, folder: Folder) -> None:
    """The verdict, and the simple rules of the task beside the found unit's mean over seeds."""
    row, rules = verdict[FOUND], simple_rules(problem.whole, verdict.split, folder.path)
    scores = {name: fmean(row.values(name)) for name in verdict.metrics}
    if rules is not None and (sentence := rules.sentence(scores, "the found unit")):
        say(printable(sentence))
    print_verdict(verdict)
    for line in (*verdict.words(), *(() if rules is None else rules.lines(scores, FOUND))):
        say(printable(line))


def _left(later: int, report: shows.Report) -> float:
    """Estimate the seconds left of a search: its stage's, and `later` updates at this pace."""
    return report.left + later * report.elapsed / max(report.step, 1)


def _found(search: Search, resume: bool) -> Found:
    if resume:
        search.resume()
    return search.run()


def best_random(
    problem: Problem,
    space: Space,
    settings: Settings,
    options: SearchOptions,
    units: int,
    folder: Folder,
    world: World,
    show: shows.Progress,
    workers: Workers | None = None,
) -> Found:
    """The best of some units at random, chosen as the found one was."""
    place = Folder(folder.path / "random")
    if world.is_first:
        make_folder(place.path)
        place.make()
    world.tell(None)
    steps = units * options.candidate_steps
    # Other units than a search by evolution began with, which draws by the same seed.
    limits = {"steps": steps, "minutes": 0.0, "epochs": 0.0, "seed": settings.seed + 1}
    again = Search(
        problem,
        space,
        replace(settings, **limits),
        replace(options, strategy="random"),
        folder=place,
        world=world,
        progress=show,
        workers=workers,
    )
    return _found(again, resume=True)


def write_found(folder: Folder, found: Found, options: SearchOptions) -> None:
    """cell.json and its picture, and in search.json how the unit was found."""
    graph = found.unit.graph(options.search_width, options.search_width)
    save(graph, folder.path / "cell.json")
    write(folder.path / "cell.svg", svg(graph))
    about = {
        "unit": found.unit.lines,
        "bias": found.unit.bias,
        "strategy": options.strategy,
        "steps": found.steps,
        "seconds": round(found.elapsed, 1),
        "score": found.score,
        "finalists": [score for _, score in found.finalists],
        "formula": text(graph).splitlines(),
    }
    write_document(folder.path / "search.json", about)


def print_verdict(verdict: Verdict) -> None:
    """The table, with what it is of."""
    count = len(verdict.rows[0].scores)
    seeds = "one seed" if count == 1 else f"{count} seeds, mean ± deviation"
    length = clock(verdict.seconds) if verdict.seconds else f"{verdict.steps:,} updates"
    say(f"trained from scratch, {length} each, on {verdict.split}, {seeds}:")
    head, *lines = verdict.table()
    print_table(head, lines)


def indented(lines: str) -> str:
    return "\n".join(f"  {line}" for line in lines.splitlines())
