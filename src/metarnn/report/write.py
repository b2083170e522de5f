"""The page of one run, or of several side by side: what was learned, and how."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from metarnn.cells import LSTM, check
from metarnn.graph import Graph, text, trace_cell
from metarnn.graph.files import write
from metarnn.report import inside, sections, unit
from metarnn.report.lead import lead
from metarnn.report.looking import SECONDS, TROUBLE, Look, Looking
from metarnn.report.markup import Markup, join, tag
from metarnn.report.materials import Materials, gather
from metarnn.report.page import Page, Section
from metarnn.report.work import EXHIBITS
from metarnn.study.study import fingerprint, versions
from metarnn.training.progress import SILENT, Progress

THETA = (
    "The weights of the unit are written anew at each step. How far they are from the plain unit, "
    "and how much they move, along one sequence of the training data."
)
GATES = "How open the gates of the lowest layer are, along one sequence of the training data."


def write_report(
    folders: Sequence[Path],
    out: Path | None = None,
    show: Progress = SILENT,
    seconds: float = SECONDS,
) -> Path:
    """Write the report of these folders; the path of its file.

    Args:
        seconds: how long to look at each model at work
    """
    folders = [Path(folder) for folder in folders]
    if not folders:
        check.refuse("runs", [], "at least one folder of a run")
    if out is None:
        out = folders[0] / "report.html" if len(folders) == 1 else Path("report.html")
    every = [gather(folder) for folder in folders]
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise ValueError(f"{str(out)!r}: expected a file in a folder that exists")
    write(out, page(every, show, seconds).html())
    return out


def page(every: Sequence[Materials], show: Progress = SILENT, seconds: float = SECONDS) -> Page:
    """The page of what was gathered from some folders."""
    for found, name in zip(every, _names(every), strict=True):
        found.name = name
    looks = {found.name: _look(found, show, seconds) for found in every}
    sizes = {name: each.size for name, each in looks.items() if each.size}
    single = every[0] if len(every) == 1 else None
    titles = {EXHIBITS[found.task].title for found in every if found.task in EXHIBITS}
    title = titles.pop() if len(titles) == 1 else "At work"
    made: dict[str, Callable[[], Section | None]] = {
        "verdict": lambda: sections.verdict(single) if single else sections.runs(every, sizes),
        "simple rules": lambda: sections.rules(every),
        "the race": lambda: sections.race(single) if single else None,
        "decisions": lambda: sections.decisions(single) if single else None,
        "learning curves": lambda: sections.learning(every),
        "the unit": lambda: unit.cells(_units(every), trace_cell(LSTM(8, 8))),
        "the search": lambda: unit.searching(single) if single else None,
        "its work": lambda: _each("work", title, looks, lambda look: look.work),
        "generated weights": lambda: _each(
            "theta", "How the weights move", looks, lambda look: look.moving, THETA
        ),
        "gates": lambda: _each("gates", "Gate activity", looks, lambda look: look.gates, GATES),
        "gradient reach": lambda: inside.reaching(
            {name: look.reach for name, look in looks.items() if look.reach}
        ),
        "speed": lambda: sections.speed(
            every, {name: look.engine for name, look in looks.items() if look.engine}
        ),
        "origin": lambda: sections.origin(every, {f.name: _origin(f) for f in every}),
    }
    missing = [
        line if single else f"{found.name}: {line}"
        for found in every
        for line in (*found.missing, *looks[found.name].missing)
    ]
    shown = []
    for name, make in made.items():
        try:
            shown.append(make())
        except TROUBLE as error:  # of numbers that nobody would have written
            missing.append(f"{name}: {type(error).__name__}: {error}")
    heading = str(single.path) if single else ", ".join(looks)
    there = [section for section in shown if section is not None]
    return Page(heading, lead(every, sizes), there, _facts(every, sizes), missing)


def _look(found: Materials, show: Progress, seconds: float) -> Look:
    show.say(f"{found.path}: looking at it")
    seen = Looking(found, seconds=seconds).look()
    if seen.moving is None and found.learn:
        seen.moving = _moving_of_rival(found)
    return seen


def _moving_of_rival(found: Materials) -> Markup | None:
    """Of a study whose best model generates no weights, those of the one that does."""
    for path in sorted((found.path / "verdict").glob("meta-*-*")):
        if (path / "config.toml").exists() and (path / "model.safetensors").exists():
            shown = Looking(gather(path)).moving()
            return join(tag("p", f"Of {path.name}, in the verdict."), shown) if shown else None
    return None


def _names(every: Sequence[Materials]) -> list[str]:
    """Names of folders, and where two share one, their paths."""
    counts = Counter(found.name for found in every)
    names = [str(f.path) if counts[f.name] > 1 else f.name for f in every]
    again = Counter(names)
    return [f"{n} ({k})" if again[n] > 1 else n for k, n in enumerate(names, 1)]


def _each(
    name: str,
    title: str,
    looks: Mapping[str, Look],
    part: Callable[[Look], Markup | None],
    about: str = "",
) -> Section | None:
    parts = {run: shown for run, look in looks.items() if (shown := part(look))}
    return Section(name, title, inside.titled(parts, len(looks)), about) if parts else None


def _units(every: Sequence[Materials]) -> dict[str, Graph]:
    """The units to draw: what a search found, and what runs have, each once."""
    found: dict[str, Graph] = {}
    for each in every:
        several = f" of {each.name}" if len(every) > 1 else ""
        if each.found is not None:
            found[f"The unit that was found{several}"] = each.found
        known = {text(graph) for graph in found.values()}
        if each.cell is not None and text(each.cell) not in known:
            found[f"The unit{several or ' of this run'}"] = each.cell
    return found


def _facts(every: Sequence[Materials], sizes: Mapping[str, int]) -> list[tuple[str, str]]:
    if len(every) > 1:
        return [("runs", str(len(every)))]
    found, size = every[0], sizes.get(every[0].name) or every[0].learn.get("parameters")
    facts = [("task", found.task)]
    if data := _data(found):
        facts.append(("data", data))
    if isinstance(size, int):
        facts.append(("parameters", f"{size:,}"))
    if isinstance(found.learn.get("seeds"), list):
        facts.append(("seeds", str(len(found.learn["seeds"]))))
    return [(name, value) for name, value in facts if value]


def _data(found: Materials) -> str:
    about = found.learn.get("data")
    path = about.get("path") if isinstance(about, dict) else found.config.get("data")
    return str(path) if path else ""


def _origin(found: Materials) -> list[tuple[str, str]]:
    """What it takes to do it again."""
    learn, task = found.learn, str(found.config.get("task", ""))
    verb = "search" if found.is_search else "train"
    again = f"metarnn {verb} {found.task} --config {shlex.quote(str(found.path / 'config.toml'))}"
    facts = [("command", str(learn.get("command") or (again if task else "")))]
    seeds = learn.get("seeds", found.config.get("seed", ""))
    facts.append(("seeds", ", ".join(map(str, seeds)) if isinstance(seeds, list) else str(seeds)))
    facts.append(("data", _data(found)))
    about = learn.get("data")
    about = about if isinstance(about, dict) else {}
    facts.append(("SHA-256 of the data", str(about.get("sha256") or _fingerprint(_data(found)))))
    lines = about.get("about", ())
    facts += [("found in it", str(line)) for line in lines if isinstance(lines, list)]
    known = learn.get("versions")
    told = "versions" if isinstance(known, dict) else "versions, of this report"
    made = known if isinstance(known, dict) else versions()
    facts.append((told, ", ".join(f"{k} {v}" for k, v in made.items())))
    facts.append(("machine", str(learn.get("machine", ""))))
    stages = learn.get("stages")
    for stage in stages if isinstance(stages, list) else ():
        if isinstance(stage, dict) and isinstance(stage.get("seconds"), int | float):
            facts.append((f"time for {stage.get('name', '')}", f"{stage['seconds']:,.1f} s"))
    return [(name, value) for name, value in facts if value]


def _fingerprint(data: str) -> str:
    with suppress(OSError):  # what may not be read has none
        return fingerprint(data) if data else ""
    return ""
