"""`metarnn adapt RUN`: from a trained learner and a few examples to a model of a new task."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.meta import Episode, Learner
from metarnn.runs import fewshot
from metarnn.runs.tasks import open_run, refuse_use
from metarnn.training import checkpoint
from metarnn.training.progress import line_for_output, printable
from metarnn.training.world import find_device


def adapt(
    run: Path,
    /,
    support: Path,
    query: Path | None = None,
    steps: int | None = None,
    about: tuple[str, ...] = (),
    out: Path | None = None,
    device: str = "cpu",
) -> None:
    """Adapt the learner of a run folder to a new task, and predict with it.

    metarnn adapt runs/fewshot --support few.csv --query ask.csv

    metarnn adapt runs/fewshot --support trajectory.csv --about mu=2.5

    Args:
        run: the run folder
        support: examples of the task: rows x,y of a CSV file (sinusoid), a trajectory, a row an
            observation (forecasts), a folder with a folder for each class, a text
        query: what to predict, as the support but without answers; predictions go to standard
            output. A trajectory is continued without it
        steps: updates on the support, by default as many as in training
        about: what is known of the task, as in --about mu=2.5, for hyper-metadata
        out: put the adapted weights into this file (safetensors)
        device: where to compute: auto, cpu, cuda
    """
    _adapt(run, support, query, steps, about, out, device)


def _adapt(
    path: Path,
    support: Path,
    query: Path | None,
    steps: int | None,
    about: tuple[str, ...],
    out: Path | None,
    device: str,
) -> None:
    place = find_device(device)
    run = open_run(path)
    if not isinstance(run.config, fewshot.Config):
        refuse_use(path, "a few-shot learner", run.entry)
    if steps is not None:
        check.size("steps", steps, least=0)
    if out is not None and not out.absolute().parent.is_dir():
        check.refuse("out", str(out), "a file in a folder that exists")
    family = fewshot.family(run.config, run.folder)
    learner: Any = run.weights(run.entry.model(run.config, run.folder)).to(place)
    if out is not None and not hasattr(learner, "adapted"):
        check.refuse("out", str(out), f"none: {run.config.method} has no weights of a task")
    x, y = family.known(support)
    known = {name: [value] for name, value in map(_pair, about)} or None
    forecasts = query is None and run.config.family in fewshot.SYSTEMS
    asked = family.asked(query or support) if query is not None or forecasts else None
    with torch.no_grad():
        _report(learner, _episode(x, y, x, y, known).to(place), steps)
        if out is not None:
            weights = learner.adapted(_episode(x, y, x, y, known).to(place), steps)
            checkpoint.save_weights(out, {n: w[0].contiguous() for n, w in weights.items()})
            print(printable(f"adapted weights in {out}"), file=sys.stderr)
        if asked is not None:
            query_x, query_y = asked
            blank = y.new_zeros(len(query_x), *y.shape[1:])
            episode = _episode(x, y, query_x, blank if query_y is None else query_y, known)
            episode = episode.to(place)
            prediction = learner.predict(episode, steps)
            if query_y is not None:
                cost = float(learner.costs(prediction, episode.query_y))
                print(f"{_name(run.config)} on the query {cost:.4f}", file=sys.stderr)
            for line in family.shown(prediction[0].cpu(), support):
                print(line_for_output(line))


def _report(learner: Learner, episode: Episode, steps: int | None) -> None:
    """How well the support itself is told, before adaptation and after."""
    found = [float(learner.costs(learner.predict(episode, steps), episode.query_y))]
    if getattr(learner, "steps", 0):
        found = [float(learner.costs(learner.predict(episode, 0), episode.query_y)), *found]
    words = " → ".join(f"{cost:.4f}" for cost in found)
    print(f"loss on the support ({episode.x.shape[1]} examples): {words}", file=sys.stderr)


def _name(config: fewshot.Config) -> str:
    regression = config.family == "sinusoid" or config.family in fewshot.SYSTEMS
    return "mean squared error" if regression else "nats"


def _episode(x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor, about: Any) -> Episode:
    """One task."""
    return Episode(x[None], y[None], query_x[None], query_y[None], about)


def _pair(text: str) -> tuple[str, float | str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        check.refuse("about", text, "a name and a value, as in mu=2.5")
    try:
        return name, float(value)
    except ValueError:
        return name, value
