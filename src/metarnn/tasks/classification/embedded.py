"""Labelled sequences that are generated: one set for each kind of labels."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from metarnn.tasks.classification.examples import Example, Kind

Random = np.random.Generator

# Strokes of the digits: corners of lines, x to the right and y down, from 0 to 1.
STROKES: dict[str, list[list[tuple[float, float]]]] = {
    "0": [[(0.5, 0.0), (0.1, 0.25), (0.1, 0.75), (0.5, 1.0), (0.9, 0.75), (0.9, 0.25), (0.5, 0.0)]],
    "1": [[(0.25, 0.25), (0.55, 0.0), (0.55, 1.0)]],
    "2": [[(0.1, 0.25), (0.5, 0.0), (0.9, 0.25), (0.1, 1.0), (0.95, 1.0)]],
    "3": [[(0.1, 0.1), (0.6, 0.0), (0.85, 0.25), (0.4, 0.45), (0.9, 0.7), (0.6, 1.0), (0.1, 0.9)]],
    "4": [[(0.6, 0.0), (0.05, 0.65), (0.95, 0.65)], [(0.7, 0.35), (0.7, 1.0)]],
    "5": [[(0.9, 0.0), (0.2, 0.0), (0.15, 0.45), (0.7, 0.4), (0.9, 0.7), (0.6, 1.0), (0.1, 0.95)]],
    "6": [[(0.75, 0.0), (0.2, 0.5), (0.15, 0.8), (0.5, 1.0), (0.85, 0.75), (0.5, 0.5), (0.2, 0.7)]],
    "7": [[(0.1, 0.0), (0.9, 0.0), (0.4, 1.0)]],
    "8": [
        [(0.5, 0.45), (0.15, 0.2), (0.5, 0.0), (0.85, 0.2), (0.5, 0.45)],
        [(0.5, 0.45), (0.1, 0.75), (0.5, 1.0), (0.9, 0.75), (0.5, 0.45)],
    ],
    "9": [[(0.85, 0.3), (0.5, 0.5), (0.15, 0.25), (0.5, 0.0), (0.85, 0.3), (0.75, 1.0)]],
}
SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sine": lambda p: np.sin(2 * np.pi * p),
    "square": lambda p: np.where(p % 1 < 0.5, 1.0, -1.0),
    "saw": lambda p: 2 * (p % 1) - 1,
    "noise": lambda p: np.zeros_like(p),
}
MORSE = {"a": ".-", "e": ".", "i": "..", "m": "--", "n": "-.", "o": "---", "s": "...", "t": "-"}


def digits(random: Random, count: int) -> list[Example]:
    """Drawn digits as 8 rows of 8 grey values; one label."""
    return [_digit(str(k % 10), random) for k in range(count)]


def _digit(name: str, random: Random) -> Example:
    angle, shear = random.uniform(-0.2, 0.2), random.uniform(-0.25, 0.25)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turn = turn @ np.array([[random.uniform(3.6, 5.2), 3 * shear], [0, random.uniform(5.0, 6.6)]])
    shift = 3.5 + random.uniform(-0.5, 0.5, 2)
    y, x = np.mgrid[:8, :8]
    nearest = np.full((8, 8), np.inf)
    for stroke in STROKES[name]:
        corners = (np.array(stroke) - 0.5 + random.normal(0, 0.03, (len(stroke), 2))) @ turn.T
        corners += shift
        for a, b in pairwise(corners):
            (u, v), (p, q) = b - a, (x - a[0], y - a[1])
            along = np.clip((p * u + q * v) / max(u**2 + v**2, 1e-9), 0, 1)
            nearest = np.minimum(nearest, np.hypot(p - along * u, q - along * v))
    ink = np.clip(random.uniform(1.0, 1.4) - nearest, 0, 1) + random.normal(0, 0.05, (8, 8))
    return Example(np.clip(ink, 0, 1).astype(np.float32), name)


def shapes(random: Random, count: int) -> list[Example]:
    """A wave that changes its shape; the shape at each step is the tag."""
    examples = []
    for _ in range(count):
        pieces, tags = [], []
        for _ in range(random.integers(2, 5)):
            name = str(random.choice(list(SHAPES)))
            steps = np.arange(random.integers(20, 40)) / random.uniform(8, 16) + random.random()
            pieces.append(SHAPES[name](steps))
            tags += [name] * len(steps)
        wave = np.concatenate(pieces) + random.normal(0, 0.2, len(tags))
        examples.append(Example(wave[:, None].astype(np.float32), tuple(tags)))
    return examples


def morse(random: Random, count: int) -> list[Example]:
    """Letters keyed at a speed of chance, with noise; the letters are told, not where they are."""
    examples = []
    for _ in range(count):
        letters = tuple(random.choice(list(MORSE), random.integers(2, 6)))
        dot, signal = random.uniform(1.5, 2.5), []
        for letter in letters:
            for mark in MORSE[letter]:
                long = dot * (3 if mark == "-" else 1) * random.uniform(0.85, 1.15)
                signal += [1.0] * max(round(long), 1) + [0.0] * max(round(dot), 1)
            signal += [0.0] * round(2.5 * dot)
        noisy = np.array(signal) + random.normal(0, 0.15, len(signal))
        examples.append(Example(noisy[:, None].astype(np.float32), tuple(map(str, letters))))
    return examples


def tones(random: Random, count: int) -> list[Example]:
    """Some of four tones at once; all that sound are the labels."""
    periods = {"low": 25.0, "middle": 13.0, "high": 7.0, "highest": 4.0}
    examples = []
    for _ in range(count):
        steps = np.arange(random.integers(60, 100))
        names = tuple(name for name in periods if random.random() < 0.5)
        wave = random.normal(0, 0.3, len(steps))
        for name in names:
            wave += np.sin(2 * np.pi * (steps / periods[name] + random.random()))
        examples.append(Example(wave[:, None].astype(np.float32), names))
    return examples


def visits(random: Random, count: int) -> list[Example]:
    """Three slowly changing values seen at irregular times, most of them missing; one label."""
    names = ("rising", "falling", "swinging", "steady")
    examples = []
    for k in range(count):
        name = names[k % len(names)]
        times = np.cumsum(random.exponential(1.0, random.integers(20, 50)))
        t = times / times[-1]
        trend = {"rising": t, "falling": -t, "swinging": np.sin(4 * np.pi * t), "steady": 0 * t}
        base = np.stack([trend[name], np.cos(2 * np.pi * t), -trend[name]], 1)
        x = base + random.normal(0, 0.3, base.shape)
        x[random.random(x.shape) < 0.6] = np.nan
        examples.append(Example(x.astype(np.float32), name, times))
    return examples


EMBEDDED: dict[str, tuple[Kind, Callable[[Random, int], list[Example]], int]] = {
    "digits": ("one", digits, 3000),
    "shapes": ("tags", shapes, 600),
    "morse": ("ctc", morse, 1500),
    "tones": ("multi", tones, 1000),
    "visits": ("one", visits, 800),
}


def generate(name: str, seed: int = 0) -> tuple[Kind, list[Example]]:
    """The examples of that name, the same each time."""
    kind, make, count = EMBEDDED[name]
    return kind, make(np.random.default_rng([seed, 11]), count)
