"""Simple rules of classification: the most frequent answer, nearest neighbours, MiniRocket,
and MultiRocket-Hydra where aeon is installed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from metarnn.tasks.classification import hydra, metrics
from metarnn.tasks.classification.baselines import (
    distances,
    dtw,
    dtw_seconds,
    minirocket,
    nearest,
    rocket_plan,
)
from metarnn.tasks.classification.examples import Dataset, Part
from metarnn.tasks.rules import Rule, RuleSet, fingerprint
from metarnn.tasks.task import Measure

PRODUCTS = 1e9  # a second, of Euclidean distances on one core
FLOPS = 8e9  # a second, in float64
ROCKET = 1000  # training examples of MiniRocket
FEATURE_VALUES = 2e8  # a second, of MiniRocket's features
FEWEST = 5  # training examples a class that nearest neighbours need


def rule_set(data: Dataset, split: str, seconds: float) -> RuleSet:
    """The rules that fit the kind of labels and of sequences."""
    kind, test = data.scheme.kind, data[split]
    names = {"multi": "micro_f1", "ctc": "label_error_rate"}
    measure = Measure(names.get(kind, "accuracy"), kind != "ctc")
    if "train" not in data.parts:
        return RuleSet("", measure, ())
    train = data["train"]
    frequent = Rule("most frequent answer", 0.1, lambda: _most_frequent(kind, train, test))
    rules = [frequent]
    if kind == "one" and data.scheme.channels and not data.scheme.missing:
        rules += _neighbours(data, train, test, seconds)
    parts = (*_arrays(train), *_arrays(test))
    return RuleSet(fingerprint((kind, *data.scheme.classes, *parts)), measure, tuple(rules))


def _arrays(part: Part) -> Iterator[np.ndarray]:
    yield from part.x
    yield from map(np.asarray, part.y)


def _most_frequent(kind: str, train: Part, test: Part) -> dict[str, float]:
    if kind == "multi":
        usual = (np.stack(train.y).mean(0) > 0.5) * 1.0
        truth = np.stack(test.y)
        return metrics.multi_label(truth, np.broadcast_to(usual, truth.shape))
    if kind == "ctc":
        (answer, _), *_ = Counter(tuple(y.tolist()) for y in train.y).most_common(1)
        edits = [metrics.edit_distance(answer, y.tolist()) for y in test.y]
        return {"label_error_rate": sum(edits) / max(sum(map(len, test.y)), 1)}
    known, truth = (np.concatenate([np.atleast_1d(y) for y in p.y]) for p in (train, test))
    return _scored(np.full(len(truth), np.bincount(known).argmax()), truth)


def _scored(guess: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    counts = metrics.confusion(truth, guess, int(max(guess.max(), truth.max())) + 1)
    return {"accuracy": float((guess == truth).mean()), "macro_f1": metrics.macro_f1(counts)}


def _neighbours(data: Dataset, train: Part, test: Part, seconds: float) -> Iterator[Rule]:
    truth, size = np.array(test.y), data.scheme.channels
    longest = max(len(x) for part in (train, test) for x in part.x)
    equal = len({len(x) for part in (train, test) for x in part.x}) == 1
    if equal:
        took = 0.1 + len(train) * len(test) * longest * size / PRODUCTS
        yield Rule("nearest neighbour (Euclidean)", took,
                   lambda: _scored(nearest(train, test, distances), truth))  # fmt: skip
    affordable = int(seconds / 3 / dtw_seconds(train, test) * len(train))
    if affordable >= FEWEST * len(data.scheme.classes):
        known, note = _some(train, affordable)
    else:
        known, note = train, ""  # too few would be no neighbours: skipped for its time
    yield Rule("nearest neighbour (DTW)", dtw_seconds(known, test),
               lambda: _scored(nearest(known, test, dtw), truth), note)  # fmt: skip
    if equal:
        some, limit = _some(train, ROCKET)
        dilations, count = rocket_plan(longest)
        features = 84 * len(dilations) * count
        took = 0.2 + features * (len(some) + len(test)) * longest / FEATURE_VALUES
        took += (2 * features * len(some) ** 2 + 10 * len(some) ** 3) / FLOPS

        def rocket() -> dict[str, float]:
            return _scored(minirocket(some, test, len(data.scheme.classes)), truth)

        yield Rule("MiniRocket with ridge", took, rocket, limit)
        if hydra.installed() and longest >= hydra.SHORTEST:
            yield Rule("MultiRocket-Hydra with ridge (aeon)", hydra.seconds(some, test),
                       lambda: _scored(hydra.answers(some, test), truth), limit)  # fmt: skip


def _some(train: Part, most: int) -> tuple[Part, str]:
    """At most so many training examples, drawn at random, and a note where they are fewer."""
    if most >= len(train):
        return train, ""
    chosen = np.random.default_rng(0).choice(len(train), most, replace=False)
    return train.take(np.sort(chosen)), f"from {most:,} of {len(train):,} training examples"
