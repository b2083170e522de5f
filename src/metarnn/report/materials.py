"""What a folder has to tell: everything in it is optional, and nothing in it is trusted."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, TypeGuard, TypeVar

from metarnn.graph import Graph, read
from metarnn.graph.files import document, text
from metarnn.search.verdict import Row
from metarnn.training import config

T = TypeVar("T")
Measured = list[dict[str, Any]]  # lines of metrics.jsonl
CURVES = 64  # trainings of a verdict whose curves are read
# Bytes of metrics.jsonl at most, and of all those of a verdict's trainings: 100,000 lines or more.
# In memory they are some ten times as many.
MEASURED = 32 * 2**20


@dataclass(frozen=True)
class Judged:
    """A verdict as it was written.

    metric  the score that counts; `large` where a large one is good
    words   what was said of the table
    """

    rows: tuple[Row, ...]
    split: str
    steps: int
    metric: str
    large: bool = False
    words: tuple[str, ...] = ()

    @property
    def seeds(self) -> int:
        return min(len(row.scores) for row in self.rows)

    @property
    def best(self) -> Row:
        return min(self.rows, key=self.rank)

    def rank(self, row: Row) -> float:
        """Smaller for a better unit; infinite where a training blew up."""
        values = row.values(self.metric)
        if not all(map(math.isfinite, values)):
            return math.inf
        return -fmean(values) if self.large else fmean(values)


@dataclass
class Materials:
    """A run, a search or a study, as far as it can be read.

    config     config.toml
    metrics    metrics.jsonl: the learning curve of a run; of a search, how it moved
    cell       cell.json
    learn      learn.json of a study
    search     search.json, and `moved`, the metrics of that search; `found`, its unit
    verdict    verdict.json
    trainings  the metrics of each training of the verdict, by unit and seed
    race       those of each contender of a study, by name
    missing    what could not be read, in words
    """

    path: Path
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    metrics: Measured = field(default_factory=list)
    cell: Graph | None = None
    learn: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    moved: Measured = field(default_factory=list)
    found: Graph | None = None
    verdict: Judged | None = None
    trainings: dict[tuple[str, int], Measured] = field(default_factory=dict)
    race: dict[str, Measured] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def task(self) -> str:
        """lm, translation, …, as commands call it."""
        return str(self.learn.get("task") or self.config.get("task", "")).removeprefix("search-")

    @property
    def is_search(self) -> bool:
        return str(self.config.get("task", "")).startswith("search-")

    @property
    def unit(self) -> str:
        """The recurrent unit of a run, as its configuration calls it."""
        cell = str(self.config.get("cell", ""))
        model = str(self.config.get("model", "plain"))
        name = "a unit from a file" if cell.endswith(".json") else cell.upper()
        return name if model in ("plain", "") else f"{model} {name}"

    def best(self) -> dict[str, float]:
        """The scores of the best validation, the one to make small first; its step last."""
        lines = [
            {k.removeprefix("valid_"): v for k, v in line.items() if k.startswith("valid_")}
            | {"step": line.get("step")}
            for line in self.metrics
            if any(name.startswith("valid_") for name in line)
        ]
        lines = [{k: float(v) for k, v in line.items() if _number(v)} for line in lines]
        lines = [line for line in lines if len(line) > 1]
        if not lines:
            return {}
        first = next(iter(lines[0]))
        return min(lines, key=lambda line: line.get(first, math.inf))

    @property
    def rules_sentence(self) -> str:
        """How the model stands against the simple rules of its task, "" before it was scored."""
        return str(self._scored.get("simple_rules") or "")

    def simple_rules(self) -> dict[str, dict[str, float]]:
        """Scores on held-out data by rule and metric, those of this model first."""
        rows: dict[str, dict[str, float]] = {"this model": {}}
        own: dict[str, float] = {}
        for key, value in self._scored.items():
            match = re.fullmatch(r"(\w+?)_(\w+)(?: \((.+)\))?", key)
            if match and _number(value):
                row = rows.setdefault(match[3], {}) if match[3] else own
                row[f"{match[2]} ({match[1]})"] = value
        metrics = [name for rule, row in rows.items() if rule != "this model" for name in row]
        rows["this model"] = {name: own[name] for name in dict.fromkeys(metrics) if name in own}
        return rows if len(rows) > 1 else {}

    @property
    def _scored(self) -> dict[str, Any]:
        """The last line that was measured on held-out data."""
        return next((line for line in reversed(self.metrics) if "simple_rules" in line), {})

    def curve(self, name: str) -> list[tuple[float, float]]:
        return curve(self.metrics, name)


def curve(metrics: Measured, name: str) -> list[tuple[float, float]]:
    """(step, value) wherever a number of that name was measured."""
    found = [(line.get("step"), line.get(name)) for line in metrics]
    return [(float(s), float(v)) for s, v in found if _number(s) and _number(v)]


def names(metrics: Measured, start: str) -> list[str]:
    """The names of measured numbers that begin like this, in their order."""
    found = {name: None for line in metrics for name in line if name.startswith(start)}
    return list(found)


def gather(path: Path) -> Materials:
    """All that is in a folder; a FileNotFoundError where it is no run at all.

    What is there and cannot be read is said in `missing`, and left out.
    """
    if not path.is_dir():
        kind = "is a file" if path.exists() else "does not exist"
        raise FileNotFoundError(f"{path} {kind}: expected the folder of a run, a search or a study")
    found = Materials(path, path.resolve().name or str(path))
    found.config = _try(found, path / "config.toml", config.read, {})
    found.learn = _try(found, path / "learn.json", _object, {})
    if not found.config and not found.learn and not found.missing:
        raise FileNotFoundError(
            f"{path} is no run: there is neither config.toml nor learn.json in it. "
            "`metarnn train`, `search` and `learn` leave such folders under runs/"
        )
    found.metrics = _try(found, path / "metrics.jsonl", _lines, [])
    found.cell = _try(found, path / "cell.json", read, None)
    place = path if (path / "search.json").exists() or found.is_search else path / "search"
    found.search = _try(found, place / "search.json", _object, {})
    if found.search or place.is_dir():
        same = place == path
        found.moved = found.metrics if same else _try(found, place / "metrics.jsonl", _lines, [])
        found.found = found.cell if same else _try(found, place / "cell.json", read, None)
    if found.is_search:
        found.metrics, found.cell = [], None
    found.verdict = _try(found, path / "verdict.json", _verdict, None)
    trainings = sorted((path / "verdict").glob("*-*/metrics.jsonl"))[:CURVES]
    for each in trainings:
        match = re.fullmatch(r"(.+)-(\d{1,9})", each.parent.name)
        if match:
            key = match[1].replace("-", " "), int(match[2])
            most = MEASURED // len(trainings)
            found.trainings[key] = _try(found, each, partial(_lines, most=most), [])
    for name, place in _contenders(found):
        file = path / "race" / place / "metrics.jsonl"
        found.race[name] = _try(found, file, partial(_lines, most=MEASURED // CURVES), [])
    return found


def _contenders(found: Materials) -> list[tuple[str, str]]:
    """The contenders of a study, each with the name of its folder."""
    named = found.learn.get("contenders")
    pairs = list(named.items())[:CURVES] if isinstance(named, dict) else []
    return [(n, p) for n, p in pairs if isinstance(p, str) and p == Path(p).name and p != ".."]


def _try(found: Materials, path: Path, reader: Callable[[Path], T], otherwise: T) -> T:
    """What a file says; where it is damaged, a line in `missing`."""
    if not path.exists():
        return otherwise
    try:
        return reader(path)
    except (ValueError, OSError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        place = path.relative_to(found.path)
        said = str(error).replace(str(path), "it").splitlines()
        found.missing.append(f"{place} cannot be read: {said[0] if said else type(error).__name__}")
        return otherwise


def _object(path: Path) -> dict[str, Any]:
    found = document(path)
    if not isinstance(found, dict):
        raise ValueError(f"a JSON {type(found).__name__} where an object was expected")
    return found


def _lines(path: Path, most: int = MEASURED) -> Measured:
    """The lines that are whole: the last of a run that goes on may not be."""
    found, whole = [], text(path, most).splitlines()
    for line in whole:
        try:
            one = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(one, dict):
            found.append(one)
    if whole and not found:
        raise ValueError("no line of it is JSON")
    return found


def _verdict(path: Path) -> Judged:
    """The verdict of a file, with every number checked."""
    known = _object(path)
    rows = tuple(_row(row) for row in known["rows"])
    scores = [each for row in rows for each in row.scores]
    if not scores or not all(row.scores for row in rows):
        raise ValueError("there is no unit in it, or one without scores")
    metric = str(known.get("metric") or next(iter(scores[0])))
    if not all(metric in each for each in scores):
        raise ValueError(f"a unit in it has no {metric}")
    words = [str(line) for line in known.get("words", ())]
    large = known.get("large_is_good") is True
    return Judged(rows, str(known["split"]), int(known["steps"]), metric, large, tuple(words))


def _row(row: Mapping[str, Any]) -> Row:
    scores = tuple(_scores(each) for each in row["scores"])
    return Row(str(row["name"]), int(row["width"]), int(row["parameters"]), scores)


def _scores(given: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float("nan") if v is None else float(v) for name, v in given.items()}


def _number(value: Any) -> TypeGuard[float]:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and abs(value) <= sys.float_info.max  # which also tells NaN and a huge integer


def ordered(trainings: Sequence[tuple[str, int]], verdict: Judged | None) -> list[str]:
    """Units in the order of the verdict's table, so that each keeps its colour on the page."""
    first = [] if verdict is None else [row.name for row in verdict.rows]
    return list(dict.fromkeys([*first, *(unit for unit, _ in trainings)]))
