"""What a report says first: one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metarnn.report.materials import Materials, mean
from metarnn.search.verdict import FOUND, RANDOM, Verdict, compare


def lead(every: Sequence[Materials], sizes: Mapping[str, int]) -> str:
    """The sentence on top."""
    if len(every) == 1:
        found = every[0]
        if isinstance(found.learn.get("verdict"), str) and found.learn["verdict"]:
            return found.learn["verdict"]
        if found.verdict is not None:
            return _winner(found.verdict)
        return _run_in_words(found, sizes.get(found.name))
    tasks = {found.task for found in every}
    best = {found.name: found.best() for found in every}
    first = {next(iter(scores), "") for scores in best.values()}
    if len(tasks) == 1 and len(first) == 1 and "" not in first:
        (metric,) = first
        name = min(best, key=lambda each: best[each][metric])
        value = best[name][metric]
        return f"Of {len(every)} runs, {name} has the lowest {metric} in validation: {value:.4f}."
    return f"{len(every)} runs side by side."


def _winner(verdict: Verdict) -> str:
    """The unit with the lowest mean, and whether that is more than chance."""
    metric = verdict.metrics[0]
    rows = {row.name: row.values(metric) for row in verdict.rows}
    means = {name: mean(values) for name, values in rows.items()}
    best = min(means, key=lambda name: means[name])
    seeds = len(verdict.rows[0].scores)
    least = (
        f"{called(best)} has the lowest mean {metric}, {means[best]:.4f}, of {len(means)} units "
        f"after {verdict.steps:,} updates"
    )
    if seeds == 1:
        return f"Undecided with one seed: {least}."
    ties = [n for n in rows if n != best and compare(rows[best], rows[n])[0] == "ties with"]
    if ties:
        others = _listed([called(name) for name in ties])
        return f"No clear winner: {least}, but it ties with {others}."
    return f"{least[0].upper()}{least[1:]}, beyond two standard errors of the difference."


def called(unit: str) -> str:
    """A unit of a verdict in a sentence.

    >>> called("found"), called("meta gru"), called("lstm")
    ('the found unit', 'meta GRU', 'LSTM')
    """
    known = {FOUND: "the found unit", RANDOM: "the best random unit"}
    return known.get(unit) or " ".join(w if w == "meta" else w.upper() for w in unit.split())


def _run_in_words(found: Materials, size: int | None) -> str:
    best = found.best()
    many = f" with {size:,} parameters" if size else ""
    what = f"{found.unit}{many}" if found.unit else f"A model{many}"
    if not best:
        return f"{what[0].upper()}{what[1:]}, not validated yet."
    metric, value = next(iter(best.items()))
    steps = f" after {best['step']:,.0f} updates" if "step" in best else ""
    return f"{what[0].upper()}{what[1:]} reaches {metric} {value:.4f} in validation{steps}."


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
