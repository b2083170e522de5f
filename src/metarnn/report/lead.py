"""What a report says first: one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from metarnn.report.materials import Judged, Materials
from metarnn.search.verdict import FOUND, RANDOM, Row, compare


def lead(every: Sequence[Materials], sizes: Mapping[str, int]) -> str:
    """The sentence on top."""
    if len(every) == 1:
        found = every[0]
        if isinstance(found.learn.get("verdict"), str) and found.learn["verdict"]:
            return found.learn["verdict"].partition(". ")[0].rstrip(".") + "."
        if found.verdict is not None:
            return _winner(found.verdict)
        words = _run_in_words(found, sizes.get(found.name))
        return f"{found.rules_sentence} {words}".strip()
    tasks = {found.task for found in every}
    best = {found.name: found.best() for found in every}
    first = {next(iter(scores), "") for scores in best.values()}
    if len(tasks) == 1 and len(first) == 1 and "" not in first:
        (metric,) = first
        name = min(best, key=lambda each: best[each][metric])
        value = best[name][metric]
        return f"Of {len(every)} runs, {name} has the lowest {metric} in validation: {value:.4f}."
    return f"{len(every)} runs side by side."


def _winner(verdict: Judged) -> str:
    """The best unit, and whether that is more than chance."""
    best, metric = verdict.best, verdict.metric
    value = fmean(best.values(metric))
    most = "highest" if verdict.large else "lowest"
    least = (
        f"{called(best.name)} has the {most} mean {metric}, {value:.4f}, of {len(verdict.rows)} "
        f"units after {verdict.steps:,} updates"
    )
    if verdict.seeds == 1:
        return f"Undecided with one seed: {least}."
    others = [row for row in verdict.rows if row is not best]
    ties = [called(row.name) for row in others if _chance(verdict, best, row)]
    if ties:
        return f"No clear winner: {least}, but it ties with {listed(ties)}."
    return f"{least[0].upper()}{least[1:]}, beyond two standard errors of the difference."


def _chance(verdict: Judged, best: Row, other: Row) -> bool:
    """Whether two units are no further apart than seeds make them."""
    sign = -1 if verdict.large else 1
    ours, theirs = ([sign * v for v in row.values(verdict.metric)] for row in (best, other))
    return compare(ours, theirs)[0] != "beats"


def _run_in_words(found: Materials, size: int | None) -> str:
    best = found.best()
    many = f" with {size:,} parameters" if size else ""
    what = f"{found.unit}{many}" if found.unit else f"A model{many}"
    if not best:
        return f"{what[0].upper()}{what[1:]}, not validated yet."
    metric, value = next(iter(best.items()))
    steps = f" after {best['step']:,.0f} updates" if "step" in best else ""
    return f"{what[0].upper()}{what[1:]} reaches {metric} {value:.4f} in validation{steps}."


def called(unit: str) -> str:
    """A unit of a verdict in a sentence.

    >>> called("found"), called("lstm"), called("Mogrifier-GRU, lr × 2")
    ('the found unit', 'LSTM', 'Mogrifier-GRU, lr × 2')
    """
    known = {FOUND: "the found unit", RANDOM: "the best random unit", "lstm": "LSTM", "gru": "GRU"}
    return known.get(unit, unit)


def listed(items: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *begin, last = items
    return f"{', '.join(begin)} and {last}" if begin else last
