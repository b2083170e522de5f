"""What a trained model of each task can do, in a few lines."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metarnn.tasks.classification import predict
from metarnn.tasks.forecasting.future import future
from metarnn.tasks.language import generate

SHOWN = 5
WRITTEN = 400  # tokens of text


def lines(task: str, job: Any, split: str) -> Iterable[str]:
    """A sample of what a trained model makes of held-out data."""
    with torch.no_grad():
        yield from SAMPLES[task](job, split)


def commands(task: str, path: Path) -> Iterable[str]:
    """What to type next."""
    run = shlex.quote(str(path))
    yield {
        "lm": f"metarnn generate {run} --temperature 0.7",
        "translation": f"echo '…' | metarnn translate {run}",
        "classification": f"metarnn classify {run} --data FILE",
        "forecasting": f"metarnn forecast {run}",
    }[task]
    yield f"metarnn evaluate {run}"
    yield f"metarnn cell show {run}/cell.json"


def _text(job: Any, split: str) -> Iterator[str]:
    vocabulary = job.task.corpus.vocabulary
    pieces = generate(job.model, vocabulary, "", WRITTEN, temperature=0.7, seed=0)
    yield "It writes:"
    for line in "".join(pieces).strip().splitlines():
        yield f"  {line}"


def _translations(job: Any, split: str) -> Iterator[str]:
    pairs = job.task.corpus[split].pairs
    found = job.task.translations(job.model, pairs.source[:SHOWN], job.task.search)
    yield f"It translates, from the {split} data:"
    for text, label, (best, *_) in zip(pairs.source, pairs.target, found, strict=False):
        yield f"  {text}  →  {best.text}" + ("" if best.text == label else f"   ({label})")


def _labels(job: Any, split: str) -> Iterator[str]:
    data = job.task.data
    part, names = data[split].take(range(min(SHOWN, len(data[split])))), data.scheme.classes
    kind = data.scheme.kind
    yield f"It says, of the {split} data:"
    for k, (answer, truth) in enumerate(zip(predict(job.model, part), part.y, strict=True), 1):
        if kind == "one":
            best = int(np.argmax(answer))
            judged = "right" if best == truth else f"wrong: {names[truth]}"
            yield f"  {k}: {names[best]} ({answer[best]:.0%}), which is {judged}"
            continue
        if kind == "tags":
            answer = np.argmax(answer, -1)
        if kind == "multi":
            answer, truth = np.flatnonzero(np.asarray(answer) > 0.5), np.flatnonzero(truth)
        told, true = ([names[c] for c in some] for some in (answer, truth))
        yield f"  {k}: {' '.join(told)[:60]}   ({' '.join(true)[:60]})"


def _forecasts(job: Any, split: str) -> Iterator[str]:
    yield "It forecasts, after the end of the series:"
    for series, channel, date, mean, *_ in islice(future(job.model, job.task.windows.panel), SHOWN):
        name = series if channel in ("value", series) else f"{series} {channel}"
        yield f"  {name}  {date}  {mean:.6g}"


SAMPLES = {
    "lm": _text,
    "translation": _translations,
    "classification": _labels,
    "forecasting": _forecasts,
}
