"""Simple rules of a task, scored on exactly the examples that a model is scored on."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metarnn.graph.files import document, write_document
from metarnn.tasks.task import COUNTS, Measure

FILE = "baselines.json"
VERSION = 3  # of the rules: a change of one of them outdates every cache
SECONDS = 20.0  # for all rules of a split
ENTRIES = 8  # splits and data that one cache remembers
TIE = 0.01  # share of the score, below which nobody wins


@dataclass(frozen=True)
class Rule:
    """A simple rule.

    seconds  an estimate of what `score` takes; a rule that would take too long is skipped
    score    computes its scores, under the names that the task's `evaluate` has for them
    note     the limits it was computed under
    """

    name: str
    seconds: float
    score: Callable[[], Mapping[str, float]]
    note: str = ""


@dataclass(frozen=True)
class RuleSet:
    """The rules of a split, not computed yet.

    fingerprint  of the training data and of the split, see `fingerprint`
    measure      the score by which a rule and a model are compared
    """

    fingerprint: str
    measure: Measure
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class RuleScores:
    """Scores of simple rules on a split, or on a sample of it, by rule and by metric."""

    split: str
    measure: Measure
    scores: Mapping[str, Mapping[str, float]]
    notes: tuple[str, ...] = ()
    sampled: bool = False
    skipped: tuple[str, ...] = ()

    @property
    def examples(self) -> str:
        """What they were scored on, in words."""
        return f"{'a sample of ' if self.sampled else ''}the {self.split} split"

    @property
    def best(self) -> str | None:
        """The rule with the best score."""
        name, sign = self.measure.name, -1 if self.measure.large else 1
        values = {rule: sign * row[name] for rule, row in self.scores.items() if name in row}
        return min(values, key=lambda rule: values[rule]) if values else None

    def outcome(self, scores: Mapping[str, float]) -> str:
        """How the best rule stands against a model: "beats", "ties with", "loses to" or ""."""
        name, large = self.measure.name, self.measure.large
        if self.best is None or name not in scores:
            return ""
        rule, model = self.scores[self.best][name], scores[name]
        if not math.isfinite(model):
            return "beats"
        margin = rule - model if large else model - rule
        if abs(margin) <= TIE * max(abs(rule), abs(model)):
            return "ties with"
        return "beats" if margin > 0 else "loses to"

    def sentence(self, scores: Mapping[str, float], model: str = "this model") -> str:
        """Which is better, the best rule or the model, and by which scores."""
        outcome, best, name = self.outcome(scores), self.best, self.measure.name
        if not outcome or best is None:
            return ""
        rule, own = self.scores[best][name], scores[name]
        if outcome == "loses to":
            skipped = f"; skipped: {', '.join(self.skipped)}" if self.skipped else ""
            return (
                f"{model[0].upper()}{model[1:]} beats the simple rules on {self.examples}: "
                f"{name} {own:.4f} against {rule:.4f} of the best, {best}{skipped}."
            )
        return (
            f"A simple rule {outcome} {model} on {self.examples}: "
            f"{best}, {name} {rule:.4f} against {own:.4f}."
        )

    def lines(self, scores: Mapping[str, float], model: str = "this model") -> Iterator[str]:
        """A table of the model and the rules, and the limits of the rules."""
        if self.scores:
            rows = {model: scores, **self.scores}
            metrics = self.metrics
            width = max(map(len, rows)) + 2
            yield f"beside simple rules, on {self.examples}:"
            yield f"  {'':<{width}}" + "".join(f"{name:>11}" for name in metrics)
            for title, row in rows.items():
                cells = (f"{row[name]:>11.4f}" if name in row else " " * 11 for name in metrics)
                yield f"  {title:<{width}}" + "".join(cells)
        yield from (f"  {note}" for note in self.notes)

    @property
    def metrics(self) -> list[str]:
        """The metrics that rules have, the one that counts first."""
        names = {name: None for row in self.scores.values() for name in row if name not in COUNTS}
        return sorted(names, key=lambda name: name != self.measure.name)[:5]

    def record(self, scores: Mapping[str, float], model: str = "this model") -> dict[str, Any]:
        """A line of metrics: the model's scores on the split, and those of the rules."""
        own = {f"{self.split}_{name}": value for name, value in scores.items()}
        rules = {
            f"{self.split}_{metric} ({rule})": row[metric]
            for rule, row in self.scores.items()
            for metric in self.metrics
            if metric in row
        }
        return {**own, **rules, "simple_rules": self.sentence(scores, model)}


def simple_rules(
    task: Any,
    split: str,
    folder: Path | None = None,
    seconds: float = SECONDS,
    *,
    sampled: bool = False,
) -> RuleScores | None:
    """The scores of a task's simple rules; None for a task without any.

    With a folder, what was computed of the same data and split is read from its cache, whatever
    time it was computed in: a rule has one score. What was skipped for its time is computed once
    there is enough; with 0 seconds nothing is.
    """
    if not hasattr(task, "simple_rules"):
        return None
    rule_set: RuleSet = task.simple_rules(split, seconds)
    path = None if folder is None else cache_of(folder)
    entries = {} if path is None else _entries(path)
    key = f"{VERSION} {split} {rule_set.fingerprint}"
    cached: dict[str, dict[str, float]] = {}
    notes: dict[str, str] = {}
    with suppress(LookupError, TypeError, ValueError, AttributeError):
        cached, notes = _read(entries[key])
    scores = _computed(rule_set, seconds, cached, notes)
    if path is not None and scores != cached:
        entries.pop(key, None)
        entries[key] = {"split": split, "scores": scores, "notes": notes}
        kept = dict(list(entries.items())[-ENTRIES:])
        with suppress(OSError):  # a folder that may only be read
            write_document(path, kept)
    skipped = [rule for rule in rule_set.rules if rule.name not in scores]
    for rule in skipped:
        notes[rule.name] = f"skipped, it would take about {rule.seconds:,.0f} s"
    said = (f"{rule.name}: {notes[rule.name]}" for rule in rule_set.rules if rule.name in notes)
    return RuleScores(
        split, rule_set.measure, scores, tuple(said), sampled, tuple(rule.name for rule in skipped)
    )


def _computed(
    rule_set: RuleSet,
    seconds: float,
    cached: Mapping[str, dict[str, float]],
    notes: dict[str, str],
) -> dict[str, dict[str, float]]:
    """The scores of all rules that are cached or take little enough, with notes on their limits."""
    scores: dict[str, dict[str, float]] = {}
    began = time.monotonic()
    for rule in rule_set.rules:
        if rule.name in cached:
            scores[rule.name] = cached[rule.name]
        elif rule.seconds <= seconds - (time.monotonic() - began):
            scores[rule.name] = {name: float(value) for name, value in rule.score().items()}
            if rule.note:
                notes[rule.name] = rule.note
    return scores


def cache_of(folder: Path) -> Path:
    """The cache of a run: that of its study, for one that is part of a study."""
    study = folder.absolute().parent.parent
    return (study if (study / "learn.json").exists() else folder) / FILE


def _entries(path: Path) -> dict[str, Any]:
    """What a cache holds; nothing where it cannot be read, so that it is computed anew."""
    with suppress(OSError, ValueError):
        entries = document(path)
        return entries if isinstance(entries, dict) else {}
    return {}


def _read(entry: Mapping[str, Any]) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """The scores and the notes of an entry, by rule."""
    scores = {
        str(rule): {str(name): float(value) for name, value in row.items()}
        for rule, row in entry["scores"].items()
    }
    return scores, {str(rule): str(note) for rule, note in entry["notes"].items()}


def fingerprint(parts: Iterable[np.ndarray | str | int | float]) -> str:
    """A hash of arrays and plain values, in their order.

    >>> fingerprint([np.arange(3), "a"]) == fingerprint([np.arange(3), "b"])
    False
    """
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype}{part.shape}".encode())
            found.update(np.ascontiguousarray(part).data)
        else:
            found.update(f"{part!r};".encode())
    return found.hexdigest()
