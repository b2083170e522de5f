"""Which unit to take, and what may be said of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from metarnn.search.verdict import FEW, FOUND, RANDOM, VALID, Verdict

SHORT = 1000  # updates, fewer than which are a race of beginners
# Validation examples, fewer than which cannot tell one training of a unit from another.
ENOUGH = {"examples": 200, "windows": 200, "sentences": 200, "tokens": 5000}
WRITTEN = "meta "  # before the name of a unit whose weights are written


def best_of(verdict: Verdict) -> str:
    """The unit whose validations were best on average. The test data are not asked, so that what
    they say of it is not flattered by the choice."""
    return min(verdict.rows, key=lambda row: fmean(row.values(VALID))).name


def keep_longer(longer: float, short: Sequence[float], size: int, unit: str) -> tuple[bool, str]:
    """Whether to keep the longer training of a unit, and the reason.

    Args:
        longer: its best validation loss
        short: those of the short trainings, a seed each
        size: validation examples
        unit: what these are, a key of `ENOUGH`

    >>> keep_longer(1.1, [0.9, 1.5], 38, "examples")[0]
    True
    >>> keep_longer(1.3, [0.9, 1.5], 1000, "examples")[0]
    False
    """
    mean = fmean(short)
    losses = f"validation {longer:.4f} against {mean:.4f}, the mean of {len(short)} short"
    if not math.isfinite(longer):
        return False, f"{losses}: it diverged"
    if size < ENOUGH[unit]:
        few = f"{size:,} {unit} cannot tell them apart"
        return True, f"{losses}; {few}, so the one with more updates is kept"
    return longer < mean, f"{losses}, on {size:,} {unit}"


def summary(verdict: Verdict, best: str) -> str:
    """A few sentences: what was taken, how it stands against the others, what that rests on."""
    metric, large = verdict.measure.name, verdict.measure.large
    groups: dict[str, list[str]] = {}
    for row in verdict.rows:
        if row.name != best:
            word, margin = verdict.against(best, row.name)
            groups.setdefault(word, []).append(f"{called(row.name)} ({margin:+.4f})")
    count = len(verdict.rows[0].scores)
    seeds = "one seed" if count == 1 else f"{count} seeds"
    good = "large" if large else "small"
    order = ("beats", "ties with", "is undecided against", "loses to")
    told = [f"{word} {listed(groups[word])}" for word in order if word in groups]
    said = [
        f"{called(best)[0].upper()}{called(best)[1:]} {listed(told)}.",
        f"Differences are of {metric} on the {verdict.split} data ({good} is good, {seeds}).",
        "It is the model that was kept, since it was best on the validation data.",
    ]
    if verdict.steps < SHORT:
        said.append(f"{verdict.steps} updates tell who learns fast, not who is best in the end.")
    if "loses to" in groups:
        said.append("There validation chose wrongly.")
    if count < FEW and "beats" not in groups:
        said.append("More --minutes make more seeds, and they a clearer answer.")
    return " ".join(said)


def called(unit: str) -> str:
    """A unit of a verdict in a sentence.

    >>> called("found"), called("meta gru"), called("lstm")
    ('the found unit', 'GRU with written weights', 'LSTM')
    """
    known = {FOUND: "the found unit", RANDOM: "the best random unit"}
    if unit in known:
        return known[unit]
    meta, name = unit.startswith(WRITTEN), unit.removeprefix(WRITTEN)
    name = known[name] if name in known else name.upper()
    return f"{name} with written weights" if meta else name


def listed(items: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *begin, last = items
    return f"{', '.join(begin)} and {last}" if begin else last
