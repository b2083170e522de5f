"""Sections made of what was written while something was trained, searched or judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from metarnn.report.markup import Markup, join, table, tag
from metarnn.report.materials import Materials, curve, names, ordered
from metarnn.report.page import Section
from metarnn.report.plot import Line, Plot, short
from metarnn.report.strip import strip
from metarnn.search.verdict import NO_SCORES, Row, mean_and_deviation
from metarnn.training.progress import clock, rate

SEEDS = "The mean over seeds; the band reaches from the lowest of them to the highest."
SHOWN_CURVES = 3  # scores of a validation that get a plot


def verdict(found: Materials) -> Section | None:
    """The table of units, a row of dots for each, and what that says in words."""
    judged = found.verdict
    if judged is None:
        return None
    names = [name for name in judged.rows[0].scores[0] if name not in NO_SCORES]
    names.sort(key=lambda name: name != judged.metric)
    head = tag("tr", [tag("th", n, scope="col") for n in ("unit", "width", "parameters", *names)])
    lines = [
        tag(
            "tr",
            tag("th", row.name, scope="row"),
            [tag("td", text) for text in (str(row.width), f"{row.parameters:,}")],
            [tag("td", mean_and_deviation(_known(row, name))) for name in names],
            cls="best" if row is judged.best else None,
        )
        for row in judged.rows
    ]
    inner = tag("table", tag("caption", "verdict"), tag("thead", head), tag("tbody", lines))
    shown = tag("div", inner, cls="wide", tabindex="0", role="region", aria_label="verdict")
    several = judged.seeds > 1
    about = (
        "Each unit trained from scratch at the same number of parameters: "
        f"{f'{judged.seeds} seeds' if several else 'one seed'}, {judged.steps:,} updates each, "
        f"scored on {judged.split}{'; mean ± standard deviation' if several else ''}. "
        f"{'More' if judged.large else 'Less'} {judged.metric} is better, ● marks the best."
    )
    scores = {row.name: row.values(judged.metric) for row in judged.rows}
    words = tag("ul", [tag("li", line) for line in judged.words], cls="words")
    return Section("verdict", "Verdict", join(shown, strip(scores, judged.metric), words), about)


def _known(row: Row, name: str) -> list[float]:
    return [each[name] for each in row.scores if name in each]


def runs(every: Sequence[Materials], sizes: Mapping[str, int]) -> Section | None:
    """Several runs side by side, a row each."""
    if len(every) < 2:
        return None
    scores = [name for name in _scored(every) if name not in NO_SCORES][:4]
    head = ["run", "task", "unit", "width", "parameters", "updates", *scores, "tokens/s"]
    rows = []
    for found in every:
        best = found.best()
        steps = [int(line["step"]) for line in found.metrics if isinstance(line.get("step"), int)]
        size = sizes.get(found.name)
        rows.append(
            [
                found.name,
                found.task,
                found.unit,
                str(found.config.get("width", "")),
                f"{size:,}" if size else "",
                f"{max(steps):,}" if steps else "",
                *(f"{best[name]:.4f}" if name in best else "" for name in scores),
                _speed(found.metrics),
            ]
        )
    about = "Scores are those on the validation data at each run's best validation."
    return Section("runs", "Runs side by side", table(head, rows, "runs side by side"), about)


def rules(every: Sequence[Materials]) -> Section | None:
    """Simple rules beside each model, on the same held-out data."""
    parts = []
    for found in every:
        if scores := found.simple_rules():
            names = list(dict.fromkeys(name for row in scores.values() for name in row))
            rows = [
                [rule, *(f"{row[name]:.4f}" if name in row else "" for name in names)]
                for rule, row in scores.items()
            ]
            title = tag("h3", found.name) if len(every) > 1 else None
            words = tag("p", found.rules_sentence) if found.rules_sentence else None
            parts.append(join(title, words, table(["", *names], rows, "simple rules")))
    about = "What needs no network scores on the same examples."
    return Section("rules", "Simple rules", join(parts), about) if parts else None


def learning(every: Sequence[Materials]) -> Section | None:
    """Curves of the scores in validation and of the loss in training."""
    if len(every) == 1 and every[0].trainings:
        return _learning_of_units(every[0])
    several = len(every) > 1
    plots = []
    # A refit was trained on its validation data: those scores say nothing.
    judged = [found for found in every if not found.config.get("refit")]
    for name in [n for n in _scored(judged) if n not in NO_SCORES][:SHOWN_CURVES]:
        lines = {}
        for found in judged:
            lines[found.name if several else "validation"] = Line(
                found.curve(f"valid_{name}"), colour=every.index(found)
            )
            if name == "nll" and not several:
                lines["training"] = Line(found.curve("nll"), colour=7, dashed=True)
        plots.append(Plot(lines, f"{name} in validation", "update", name).figure())
    loss = {
        found.name if several else "training": Line(found.curve("loss"), colour=k)
        for k, found in enumerate(every)
    }
    if not plots or several:
        plots.append(Plot(loss, "loss in training", "update", "training loss").figure())
    body = join([plot for plot in plots if plot])
    return Section("learning", "Learning curves", body) if body else None


def _learning_of_units(found: Materials) -> Section | None:
    """One line a unit: the mean over its seeds, in a band from the lowest to the highest."""
    units = ordered(list(found.trainings), found.verdict)
    scored = [name for metrics in found.trainings.values() for name in names(metrics, "valid_")]
    plots = []
    for name in [n for n in dict.fromkeys(scored) if n.removeprefix("valid_") not in NO_SCORES][:2]:
        lines = {}
        for k, each in enumerate(units):
            seeds = [dict(curve(m, name)) for (u, _), m in found.trainings.items() if u == each]
            lines[each] = _over_seeds(seeds, k)
        shown = name.removeprefix("valid_")
        plots.append(Plot(lines, f"{shown} in validation", "update", shown).figure())
    body = join([plot for plot in plots if plot])
    several = len({seed for _, seed in found.trainings}) > 1
    about = SEEDS if several else ""
    return Section("learning", "Learning curves", body, about) if body else None


def _over_seeds(seeds: Sequence[dict[float, float]], colour: int) -> Line:
    steps = sorted(set.intersection(*(set(s) for s in seeds))) if seeds else []
    values = {step: [s[step] for s in seeds] for step in steps}
    points = [(step, fmean(values[step])) for step in steps]
    if len(seeds) < 2:
        return Line(points, colour=colour)
    low, high = ([f(values[step]) for step in steps] for f in (min, max))
    return Line(points, low, high, colour)


def race(found: Materials) -> Section | None:
    """The learning curves of a study's contenders over time, and what each rung decided."""
    if not found.race:
        return None
    metric = _first_score(found.race.values())
    lines = {
        name: Line(_over_time(metrics, f"valid_{metric}"), colour=k)
        for k, (name, metrics) in enumerate(found.race.items())
    }
    plot = Plot(lines, "The race", "seconds of training", metric).figure(
        "Validation on a fixed sample, by the time that each contender was trained itself."
    )
    stored = found.learn.get("race")
    rungs = stored.get("rungs") if isinstance(stored, dict) else None
    budget = found.learn.get("budget")
    updates = isinstance(budget, dict) and bool(budget.get("steps"))
    tables = [_rung(r, k, updates) for k, r in enumerate(rungs or (), 1) if isinstance(r, dict)]
    about = (
        "All are trained for the same time; those with the worst predictions for the end of the "
        "training stop, the others go on from their own weights."
    )
    return Section("race", "The race", join(plot, *tables), about)


def _first_score(every: Iterable[Sequence[Mapping[str, Any]]]) -> str:
    """The score that validations tell first."""
    for metrics in every:
        for line in metrics:
            for name in line:
                if name.startswith("valid_"):
                    return name.removeprefix("valid_")
    return "loss"


def _over_time(metrics: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """Points (seconds, score) of the validations."""
    points = ((_number(line.get("seconds")), _number(line.get(name))) for line in metrics)
    return [(x, y) for x, y in points if x is not None and y is not None]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _rung(rung: Mapping[str, Any], number: int, updates: bool) -> Markup:
    """The standing of contenders when one or some of them stopped."""
    kept, until = rung.get("kept"), _number(rung.get("until")) or 0.0
    time = f"{until:,.0f} updates" if updates else clock(until)
    rows = []
    for row in rung.get("standing") or ():
        values = [_number(row.get("score")), _number(row.get("predicted"))]
        numbers = ["diverged" if value is None else short(value) for value in values]
        stays = "stays" if isinstance(kept, list) and row.get("name") in kept else "out"
        rows.append([str(row.get("name")), *numbers, stays])
    head = [f"after {time} each", "validation", "predicted for the end", ""]
    return table(head, rows, f"rung {number}")


def decisions(found: Materials) -> Section | None:
    """What a study decided, and why."""
    entries = found.learn.get("decisions")
    names = ("stage", "decision", "reason")
    rows = [
        [str(entry.get(name, "")) for name in names]
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]
    if not rows:
        return None
    return Section("decisions", "Decisions", table(list(names), rows, "decisions", cls="plain"))


def speed(every: Sequence[Materials], engines: Mapping[str, str]) -> Section | None:
    """Tokens a second while training, and which engine ran the loop over time."""
    rows = []
    for found in every:
        units = ordered(list(found.trainings), found.verdict)
        of_units: dict[str, list[dict[str, Any]]] = {each: [] for each in units}
        for (each, _), metrics in found.trainings.items():
            of_units[each] += metrics
        if not found.trainings:
            of_units = {found.name: found.metrics}
        for name, metrics in of_units.items():
            spent = [v for _, v in curve(metrics, "seconds")]
            if said := _speed(metrics):
                rows.append([name, said, clock(max(spent)) if spent else ""])
    shown = table(["", "training", "time of a run"], rows, "speed") if rows else None
    engine = [
        join(tag("h3", f"Engine of {name}" if len(engines) > 1 else "Engine"),
             tag("pre", said, cls="text"))
        for name, said in engines.items()
    ]  # fmt: skip
    if not shown and not engine:
        return None
    about = "Tokens, or what the task counts, a second: the median over the training."
    return Section("speed", "Speed and engines", join(shown, engine), about if rows else "")


def origin(every: Sequence[Materials], facts: Mapping[str, Sequence[tuple[str, str]]]) -> Section:
    """What it takes to do it again: commands, versions, seeds, data, all settings."""
    parts: list[Markup] = []
    for found in every:
        rows = [[name, tag("code", value)] for name, value in facts.get(found.name, ())]
        title = tag("h3", found.name) if len(every) > 1 else None
        inside = table(["", ""], rows, f"origin of {found.name}", cls="plain")
        settings = [[name, tag("code", _plain(value))] for name, value in found.config.items()]
        unfolded = tag(
            "details",
            tag("summary", "all settings (config.toml)"),
            table(["setting", "value"], settings, f"settings of {found.name}", cls="plain"),
        )
        parts.append(join(title, inside, unfolded if settings else None))
    return Section("origin", "How to repeat it", join(parts))


def _scored(every: Sequence[Materials]) -> list[str]:
    """The names of all scores in validation, in their order."""
    found = [name for each in every for name in names(each.metrics, "valid_")]
    return list(dict.fromkeys(name.removeprefix("valid_") for name in found))


def _speed(metrics: list[dict[str, Any]]) -> str:
    values = [v for _, v in curve(metrics, "tokens_per_second")]
    return rate(median(values)) if values else ""


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return short(value)
    return str(value)
