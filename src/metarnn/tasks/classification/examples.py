"""Labelled sequences: what was read, numbered and split."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from metarnn.cells import check

Kind = Literal["one", "tags", "ctc", "multi"]
KINDS = ("one", "tags", "ctc", "multi")


@dataclass(frozen=True)
class Example:
    """A sequence as it was read.

    x      numbers [T, C], NaN where one is missing; or a text
    label  its class ("one"), a class a step ("tags"), the classes in their order without saying
           where ("ctc"), all classes that hold ("multi"); None where it is not known
    times  [T], when each step was; None where steps are evenly spaced
    """

    x: np.ndarray | str
    label: str | tuple[str, ...] | None = None
    times: np.ndarray | None = None


Found = tuple[Kind, list[Example]]


@dataclass(frozen=True)
class Part:
    """Numbered examples.

    x      each [T, C] of float32, NaN where a number is missing; or [T] of characters' numbers
    y      each a number, [T], [n], or [K] of 0 and 1, by the kind of the labels; None: not known
    times  each [T]; None where steps are evenly spaced
    """

    x: tuple[np.ndarray, ...]
    y: tuple[Any, ...]
    times: tuple[np.ndarray, ...] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def take(self, numbers: Sequence[int] | np.ndarray) -> Part:
        times = None if self.times is None else tuple(self.times[k] for k in numbers)
        return Part(tuple(self.x[k] for k in numbers), tuple(self.y[k] for k in numbers), times)


def joined(first: Part, second: Part) -> Part:
    """The examples of both."""
    times = None
    if first.times is not None and second.times is not None:
        times = first.times + second.times
    return Part(first.x + second.x, first.y + second.y, times)


@dataclass(frozen=True)
class Scheme:
    """What a model must know of its data, learned from the training examples alone.

    kind      of the labels
    classes   their names; a class's number is its place
    channels  numbers a step; 0 for texts
    alphabet  the characters of texts; one that is not among them has the number 0
    missing   whether numbers may be missing
    timed     whether steps have times
    mean, std of each channel, of what is there
    gap       the usual time from one step to the next
    length    the longest sequence
    """

    kind: Kind
    classes: tuple[str, ...]
    channels: int
    alphabet: str = ""
    missing: bool = False
    timed: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    gap: float = 1.0
    length: int = 1

    def validate(self) -> None:
        """Refuse what no data could have given: a file may say anything."""
        if len(set(self.classes)) != len(self.classes) or not self.classes:
            check.refuse("classes", self.classes, "names that differ")
        for name in ("mean", "std"):
            found = getattr(self, name)
            if len(found) != self.channels or not all(map(math.isfinite, found)):
                check.refuse(name, found, f"{self.channels} numbers")
        if any(each <= 0 for each in self.std):
            check.refuse("std", self.std, "numbers above 0")
        if not 0 < self.gap < math.inf:
            check.refuse("gap", self.gap, "a number above 0")

    @classmethod
    def of(cls, kind: Kind, examples: Sequence[Example]) -> Scheme:
        """The scheme of training examples."""
        classes = tuple(sorted({name for e in examples for name in _names(e.label)}, key=_order))
        if len(classes) < (1 if kind in ("ctc", "multi") else 2):
            check.refuse("classes", classes, "two different labels at least")
        if len({isinstance(e.x, str) for e in examples}) > 1:
            check.refuse("x", "texts and numbers", "one of them in all examples")
        if isinstance(examples[0].x, str):
            alphabet = "".join(sorted({c for e in examples for c in e.x}))
            length = max(len(e.x) for e in examples)
            return cls(kind, classes, 0, alphabet, length=length)
        rows = np.concatenate([np.asarray(e.x, np.float64) for e in examples])
        there = np.isfinite(rows)
        count = np.maximum(there.sum(0), 1)
        mean = np.where(there, rows, 0).sum(0) / count
        std = np.sqrt((np.where(there, rows - mean, 0) ** 2).sum(0) / count)
        std[std < 1e-8] = 1.0  # a channel that never changes
        gaps = [np.diff(e.times) for e in examples if e.times is not None and len(e.times) > 1]
        gap = float(np.median(np.concatenate(gaps))) if gaps else 1.0
        return cls(
            kind,
            classes,
            rows.shape[1],
            missing=not there.all(),
            timed=examples[0].times is not None,
            mean=tuple(map(float, mean)),
            std=tuple(map(float, std)),
            gap=gap if gap > 0 else 1.0,
            length=max(len(e.x) for e in examples),
        )

    def number(self, examples: Sequence[Example], *, fill: bool = False) -> Part:
        """Examples as a model reads them; a ValueError names the first that does not fit.

        Where no number was missing in training, a missing one is refused; with `fill` it is the
        mean of its channel in the training examples.
        """
        x, y = [], []
        for k, example in enumerate(examples):
            try:
                x.append(self._x(example.x, fill))
                y.append(self._y(example.label, len(x[-1])))
            except ValueError as error:
                raise ValueError(f"example {k + 1}: {error}") from None
        times = None
        if self.timed:
            if any(e.times is None for e in examples):
                check.refuse("times", None, "times of every step: the model was trained with them")
            times = tuple(np.asarray(e.times, np.float64) for e in examples)
        return Part(tuple(x), tuple(y), times)

    def _x(self, x: np.ndarray | str, fill: bool) -> np.ndarray:
        if isinstance(x, str) != bool(self.alphabet):
            check.refuse("x", "text" if isinstance(x, str) else "numbers", "what was trained on")
        if not len(x):
            check.refuse("x", "an empty sequence", "at least one step")
        if isinstance(x, str):
            return np.array([self.alphabet.find(c) + 1 for c in x], np.int64)
        rows = np.asarray(x, np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.channels:
            check.refuse("x.shape", rows.shape, f"[steps, {self.channels}]")
        if not self.missing and not np.isfinite(rows).all():
            if fill:
                return np.where(np.isfinite(rows), rows, np.array(self.mean, np.float32))
            advice = "Train on data in which some are missing, so that the model knows of it."
            check.refuse("x", "missing numbers", "all numbers, as in training", advice)
        return rows

    def _y(self, label: str | tuple[str, ...] | None, steps: int) -> Any:
        if label is None:
            return None
        place = {name: k for k, name in enumerate(self.classes)}
        for name in _names(label):
            if name not in place:
                check.refuse("label", name, f"one of the training labels {list(self.classes)[:20]}")
        if self.kind == "one":
            if not isinstance(label, str):
                check.refuse("label", label, "one label")
            return place[label]
        if isinstance(label, str):
            check.refuse("label", label, "a list of labels")
        if self.kind == "multi":
            return np.array([float(name in label) for name in self.classes], np.float32)
        numbers = np.array([place[name] for name in label], np.int64)
        if self.kind == "tags" and len(numbers) != steps:
            check.refuse("tags", f"{len(numbers)} of them", f"one a step, {steps}")
        return numbers


@dataclass(frozen=True)
class Dataset:
    """Labelled sequences, split into train, valid and test."""

    scheme: Scheme
    parts: Mapping[str, Part]

    def __getitem__(self, split: str) -> Part:
        if split == "valid" and "valid" not in self.parts:  # too few to set some aside
            split = "train"
        return self.parts[check.one_of("split", split, self.parts)]


def divided(part: Part, kind: Kind, share: float, seed: int) -> tuple[Part, Part]:
    """A share of the examples apart from the others, see `division`."""
    numbers = [np.flatnonzero(y) if kind == "multi" else np.atleast_1d(y) for y in part.y]
    rest, apart = division([tuple(each.tolist()) for each in numbers], kind, share, seed)
    return part.take(rest), part.take(apart)


def division(
    classes: Sequence[tuple[int, ...]], kind: Kind, share: float, seed: int
) -> tuple[list[int], list[int]]:
    """Divide examples by their classes: the numbers of those that stay, and of a share set apart.

    Of kind "one" the same share of each class is set apart. Whatever the kind, each class stays in
    training: an example is not set apart where no other one with its class is left.
    """
    random = np.random.default_rng([seed, 7])
    groups: dict[Any, list[int]] = {}
    for k in random.permutation(len(classes)).tolist():
        groups.setdefault(classes[k] if kind == "one" else None, []).append(k)
    left = Counter(c for each in classes for c in set(each))
    apart: list[int] = []
    owed = 0.0
    for _, members in sorted(groups.items(), key=lambda item: _digits(item[0])):
        owed += share * len(members)
        count = min(round(owed), len(members) - 1)
        owed -= count
        for k in members:
            if count > 0 and all(left[c] > 1 for c in set(classes[k])):
                apart.append(k)
                left.subtract(set(classes[k]))
                count -= 1
    return sorted({*range(len(classes))} - set(apart)), sorted(apart)


def _digits(classes: tuple[int, ...] | None) -> str:
    """The order in which `division` deals with classes: 0, 1, 10, 11, 2."""
    return "" if classes is None else " ".join(map(str, classes))


def class_numbers(examples: Sequence[Example]) -> list[tuple[int, ...]]:
    """The classes of each example as numbers, for `division`."""
    names = sorted({name for e in examples for name in _names(e.label)}, key=_order)
    place = {name: k for k, name in enumerate(names)}
    return [tuple(place[name] for name in _names(e.label)) for e in examples]


def relabelled(examples: Sequence[Example], kind: Kind) -> list[Example]:
    """Labels as this kind has them, where another way to write them is meant."""
    if kind == "one":
        return list(examples)
    split = {"multi": lambda text: tuple(filter(None, text.replace(",", " ").split()))}
    cut = split.get(kind, tuple)  # "ctc" and "tags" of a text: its characters
    return [replace(e, label=cut(e.label)) if isinstance(e.label, str) else e for e in examples]


def _names(label: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if label is None:
        return ()
    return (label,) if isinstance(label, str) else label


def _order(name: str) -> tuple[int, float, str]:
    """Numbers by their size, then names by the alphabet."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name
