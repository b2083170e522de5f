"""Which unit to take, and what may be said of it."""

from __future__ import annotations

from statistics import fmean

from metarnn.search.verdict import FEW, VALID, Verdict


def best_of(verdict: Verdict) -> str:
    """The unit whose validations were best on average. The test data are not asked, so that what
    they say of it is not flattered by the choice."""
    return min(verdict.rows, key=lambda row: fmean(row.values(VALID))).name


def summary(verdict: Verdict, best: str) -> str:
    """A few sentences: what was taken, how it stands against the others, what that rests on."""
    metric, large = verdict.measure.name, verdict.measure.large
    groups: dict[str, list[str]] = {}
    for row in verdict.rows:
        if row.name != best:
            word, margin = verdict.against(best, row.name)
            groups.setdefault(word, []).append(f"{row.name} ({margin:+.4f})")
    count = len(verdict.rows[0].scores)
    seeds = "one seed" if count == 1 else f"{count} seeds"
    good = "large" if large else "small"
    said = [f"On the validation data {best} is best, so it is the model that was kept."]
    order = ("beats", "ties with", "is undecided against", "loses to")
    told = [f"{word} {_listed(groups[word])}" for word in order if word in groups]
    said.append(
        f"On the {verdict.split} data ({metric}, {good} is good, {seeds}) it {_listed(told)}."
    )
    if "loses to" in groups:
        said.append("There validation chose wrongly.")
    if count < FEW and "beats" not in groups:
        said.append("More --minutes make more seeds, and they a clearer answer.")
    return " ".join(said)


def _listed(items: list[str]) -> str:
    """
    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    *begin, last = items
    return f"{', '.join(begin)} and {last}" if begin else last
