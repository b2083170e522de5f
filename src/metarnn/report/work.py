"""What a report shows of a model at work: for each task the pieces that it is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from metarnn.meta import Generating
from metarnn.report import exhibits as shown
from metarnn.report import task_map
from metarnn.report.attention import alignment
from metarnn.report.inside import visible
from metarnn.report.markup import Markup, tag
from metarnn.runs import lm, translation
from metarnn.runs.tasks import Job, Run
from metarnn.tasks.classification import predict
from metarnn.tasks.classification.metrics import confusion
from metarnn.tasks.forecasting.likelihoods import LEVELS
from metarnn.tasks.language import LanguageModel, Vocabulary, generate
from metarnn.tasks.translation import EncoderDecoder, translate

EXAMPLES = 1000  # of a classifier's test data, so that a report takes seconds
SENTENCES, PICTURES = 6, 3  # translated; with a picture of the attention
WINDOWS = 3  # forecasts that are drawn
TASKS = 60  # on a map


@dataclass(frozen=True)
class Work:
    """A trained model, with its data where they are still there."""

    run: Run[Any]
    model: nn.Module
    job: Job[Any] | None


@dataclass(frozen=True)
class Exhibit:
    """What a task offers a report.

    title   of the section
    show    its content; nothing where it needs data that are gone
    tokens  what the first sequence of a training batch consists of, where that can be read
    inside  whether what its layers do with a batch can be shown
    """

    title: str
    show: Callable[[Work], Iterable[Markup]]
    tokens: Callable[[Work, Any], list[str]] = lambda work, batch: []
    inside: bool = True


def texts(work: Work) -> Iterator[Markup]:
    assert isinstance(work.model, LanguageModel)
    vocabulary = lm.vocabulary(work.run.folder)
    length = 400 if vocabulary.level in ("character", "byte") else 100
    for temperature in (0.5, 0.8, 1.0):
        pieces = generate(work.model, vocabulary, "", length, temperature=temperature, seed=0)
        yield shown.sample("".join(pieces), f"Drawn at temperature {temperature}")


def text_tokens(work: Work, batch: Any) -> list[str]:
    return _pieces(lm.vocabulary(work.run.folder), batch.inputs[:, 0].tolist())


def translations(work: Work) -> Iterator[Markup]:
    if work.job is None:
        return
    assert isinstance(work.model, EncoderDecoder)
    both = translation.vocabularies(work.run.folder)
    pairs = work.job.task.corpus[work.run.entry.held_out(work.job)].pairs
    sources, targets = pairs.source[:SENTENCES], pairs.target[:SENTENCES]
    search = replace(work.job.task.search, nbest=1)
    found = [best for best, *_ in translate(work.model, *both, sources, search)]
    yield shown.translated(list(zip(sources, [f.text for f in found], targets, strict=True)))
    if work.model.attention is None:
        return
    for source, best in list(zip(sources, found, strict=True))[:PICTURES]:
        if best.tokens:
            columns = len(both[0].encode(source)) + 1
            drawn = alignment(work.model, both, source, best)
            yield shown.attended(drawn, columns, f"{source} → {best.text}")


def source_tokens(work: Work, batch: Any) -> list[str]:
    source, _ = translation.vocabularies(work.run.folder)
    return _pieces(source, batch.source[: int(batch.lengths[0]), 0].tolist())


def labels(work: Work) -> Iterator[Markup]:
    if work.job is None:
        return
    data = work.job.task.data
    split = work.run.entry.held_out(work.job)
    scheme, part = data.scheme, data[split]
    if len(part) > EXAMPLES:
        yield tag(
            "p", f"Of {EXAMPLES:,} of the {len(part):,} examples of {split}, drawn at random."
        )
        chosen = np.random.default_rng(0).choice(len(part), EXAMPLES, replace=False)
        part = part.take(np.sort(chosen))
    answers = predict(work.model, part)
    if scheme.kind in ("one", "tags"):
        p = np.concatenate([np.atleast_2d(each) for each in answers])
        truth = np.concatenate([np.atleast_1d(y) for y in part.y])
        yield shown.confused(confusion(truth, p.argmax(1), len(scheme.classes)), scheme.classes)
        yield shown.calibrated(p.max(1), p.argmax(1) == truth)
    elif scheme.kind == "multi":
        yield shown.several(np.stack(part.y), np.stack(answers), scheme.classes)
    else:
        names = np.array(scheme.classes, dtype=object)
        rows = [
            (" ".join(names[y]), " ".join(names[a])) for y, a in zip(part.y, answers, strict=True)
        ]
        yield shown.spelled(rows[:12])


def forecasts(work: Work) -> Iterator[Markup]:
    if work.job is None:
        return
    model: Any = work.model
    windows = work.job.task.windows
    scheme, panel = windows.scheme, windows.panel
    origins = windows.origins("test")
    # The last origin of some series; of a single one, origins spread over its test part.
    lasts = [int(np.flatnonzero(origins[:, 0] == k)[-1]) for k in np.unique(origins[:, 0])]
    if len(lasts) < WINDOWS:
        lasts = np.linspace(0, len(origins) - 1, WINDOWS).astype(int).tolist()
    chosen = origins[sorted(set(lasts[:WINDOWS]))]
    torch.manual_seed(0)  # a recursive model draws its futures
    with torch.no_grad():
        told = model.forecast(windows.at(chosen))
    for b, (number, origin) in enumerate(chosen.tolist()):
        series = panel.series[number]
        mean, std = np.array(scheme.mean[number]), np.array(scheme.std[number])
        first = max(origin - max(3 * scheme.horizon, 24), 0)
        dates = _dates(series, panel, first, origin + scheme.horizon)
        channel = 0
        values = told.mean[:, b, channel].double().numpy() * std[channel] + mean[channel]
        band = None
        if told.quantiles is not None:
            low, high = (
                told.quantiles[LEVELS.index(q), :, b, channel].double().numpy() * std[channel]
                + mean[channel]
                for q in (0.1, 0.9)
            )
            band = (low, high)
        truth = series.values[first : origin + scheme.horizon, channel]
        name = series.name if len(scheme.channels) < 2 else f"{series.name}, {scheme.channels[0]}"
        yield shown.forecast(truth, values, band, dates, name)


def tasks(work: Work) -> Iterator[Markup]:
    """What a hypernetwork has learned about tasks that it has never seen."""
    if work.job is None or not isinstance(work.model, Generating):
        return
    episode = next(iter(work.job.task.episodes("test"))).part(slice(TASKS))
    known = episode.about or {}
    name, values = next(iter(known.items()), ("", None))
    found = task_map(work.model.hyper, work.model.about(episode))
    shades = None if values is None else values.tolist()
    yield shown.mapped(found.svg(shades), name)


def _dates(series: Any, panel: Any, start: int, end: int) -> list[str]:
    if series.start is None:
        return [str(t) for t in range(start, end)]
    step = panel.frequency
    unit = "s" if step.seconds % 86400 else "D"
    every = [series.start, *step.after(series.start, end - 1)]
    return [str(np.datetime64(d).astype(f"datetime64[{unit}]")) for d in every[start:end]]


def _pieces(vocabulary: Vocabulary, numbers: Iterable[int]) -> list[str]:
    return [visible(vocabulary.decode([number])) for number in numbers]


EXHIBITS = {
    "lm": Exhibit("Samples", texts, text_tokens),
    "translation": Exhibit("Translations", translations, source_tokens),
    "classification": Exhibit("Answers", labels),
    "forecasting": Exhibit("Forecasts", forecasts),
    "fewshot": Exhibit("Tasks", tasks, inside=False),
}
