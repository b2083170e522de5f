"""What a model does, as a person judges it: texts, translations, answers, forecasts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metarnn.report.markup import Markup, figure, join, table, tag
from metarnn.report.plot import Line, Plot
from metarnn.tasks.classification.metrics import calibration_error, f1

CLASSES = 30  # whose confusion a person can read
BINS = 10


def sample(text: str, caption: str) -> Markup:
    """A text, as it is."""
    return figure(tag("div", text, cls="text", role="img", aria_label=caption), caption)


def mapped(picture: str, field: str = "") -> Markup:
    """A map of tasks (`report.task_map`), coloured by a field of their description."""
    words = "Tasks never seen, by what the generator makes of them: near ones are alike"
    colours = f", from blue to orange with {field}" if field else ""
    below = "Below, how much each field of the description moves each weight."
    return figure(Markup(picture), f"{words}{colours}. {below}")


def translated(rows: Sequence[tuple[str, str, str]]) -> Markup:
    """Sources, what was made of them, and what was expected where that differs."""
    lines = [
        [source, ours, "the same" if ours == theirs else theirs] for source, ours, theirs in rows
    ]
    head = ["source", "translation", "reference"]
    return table(head, lines, "translations of the test data", cls="plain")


def attended(picture: str, columns: int, caption: str) -> Markup:
    """A picture of attention (`report.heatmap`) that answers a pointer and the arrow keys."""
    inner = picture.replace("<svg ", '<svg tabindex="0" aria-label="attention" ', 1)
    grid = tag("div", Markup(inner), cls="squares", data_columns=columns)
    tip = tag("output", cls="tip", aria_live="polite", hidden=True)
    words = f"{caption}. Each row is a token that was written, each column one that was read."
    return figure(tag("div", grid, tip, cls="holder"), words)


def confused(counts: np.ndarray, classes: Sequence[str]) -> Markup:
    """A confusion matrix, the true class down and the answer across, with F1 of each class."""
    scores = f1(counts)
    if len(classes) > CLASSES:
        worst = np.argsort(np.nan_to_num(scores, nan=2.0))[:CLASSES]
        rows = [[classes[k], f"{scores[k]:.3f}", f"{counts[k].sum():,}"] for k in worst]
        title = f"F1 of the {CLASSES} classes it knows least of {len(classes)}"
        return join(tag("p", title), table(["class", "F1", "examples"], rows, title))
    total = np.maximum(counts.sum(1, keepdims=True), 1)
    lines = []
    for name, row, share, score in zip(classes, counts, counts / total, scores, strict=True):
        cells = [
            tag("td", str(n), style=f"--v:{v:.3f}", cls="strong" if v > 0.5 else None,
                title=f"{name}, answered {other}: {n}")
            for n, v, other in zip(row, share, classes, strict=True)
        ]  # fmt: skip
        last = tag("td", "" if np.isnan(score) else f"{score:.2f}", style="--v:0")
        lines.append(tag("tr", tag("th", name, scope="row"), cells, last))
    head = tag("tr", tag("th", ""), [tag("th", name, scope="col") for name in classes],
               tag("th", "F1", scope="col"))  # fmt: skip
    caption = tag("caption", "confusion: true class down, answer across")
    inner = tag("table", caption, tag("thead", head), tag("tbody", lines), cls="heat")
    box = tag("div", inner, cls="wide", tabindex="0", role="region", aria_label="confusion")
    return figure(box, "True class down, answer across; the darker, the larger its share.")


def calibrated(confidence: np.ndarray, right: np.ndarray) -> Markup:
    """How often the model is right, against how sure it was."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    points = [
        (float(confidence[bins == b].mean()), float(right[bins == b].mean()))
        for b in np.unique(bins)
    ]
    lines = {
        "this model": Line(points, colour=0),
        "perfectly calibrated": Line([(0.0, 0.0), (1.0, 1.0)], colour=7, dashed=True),
    }
    error = calibration_error(confidence, right)
    plot = Plot(lines, "Calibration", "probability told", "share that is right", limits=(0, 1))
    return plot.figure(f"Expected calibration error {error:.3f}, over {len(right):,} answers.")


def several(truth: np.ndarray, p: np.ndarray, classes: Sequence[str]) -> Markup:
    """Labels of which several may hold: how often each does, is told, and is told rightly."""
    told = p > 0.5
    rows = []
    for k, name in enumerate(classes):
        hits = float((truth[:, k] * told[:, k]).sum())
        met = truth[:, k].sum() + told[:, k].sum()
        score = f"{2 * hits / met:.3f}" if met else ""
        rows.append([name, f"{truth[:, k].sum():,.0f}", f"{told[:, k].sum():,.0f}", score])
    return table(["label", "holds", "told", "F1"], rows, "labels")


def spelled(rows: Sequence[tuple[str, str]]) -> Markup:
    """Sequences of labels beside what was read."""
    lines = [[truth, "the same" if truth == ours else ours] for truth, ours in rows]
    return table(["labels", "answer"], lines, "labels of the test data", cls="plain")


def forecast(
    truth: np.ndarray,
    values: np.ndarray,
    band: tuple[np.ndarray, np.ndarray] | None,
    dates: Sequence[str],
    name: str,
) -> Markup:
    """What was seen, what followed and what was forecast; `truth` is as long as `dates`."""
    start = len(dates) - len(values)
    places = range(start, len(dates))
    low, high = band if band is not None else ((), ())
    lines = {
        "truth": Line(list(enumerate(truth.tolist())), colour=7),
        "forecast": Line(
            [(k, float(v)) for k, v in zip(places, values, strict=True)],
            [float(v) for v in low],
            [float(v) for v in high],
            colour=0,
        ),
    }
    plot = Plot(lines, f"Forecast of {name}", "at", name, labels=dates,
                mark=(start - 0.5, "forecast"))  # fmt: skip
    words = f"{name}: {len(values)} steps from {dates[start]} on, which the model has not seen."
    return plot.figure(words + (" The band is from 10 % to 90 %." if band is not None else ""))
