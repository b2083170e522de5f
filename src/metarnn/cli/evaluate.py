"""`metarnn evaluate RUN`: exact scores of a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from rich.table import Table

from metarnn.cells import check
from metarnn.cli.table import console, say
from metarnn.runs.tasks import open_run
from metarnn.tasks.rules import simple_rules
from metarnn.training.progress import evaluating, one_line, progress
from metarnn.training.world import find_device


def evaluate(
    run: Path,
    /,
    data: str = "",
    split: Literal["train", "valid", "test", "all"] = "test",
    dynamic: bool = False,
    beam: int = 0,
    batch: int = 0,
    device: str = "auto",
) -> None:
    """Score the model of a run folder, exactly, over every token, beside simple rules.

    metarnn evaluate runs/lm

    metarnn evaluate runs/lm --data other.txt --split all

    Args:
        run: the run folder
        data: other data than it was trained on, as for `metarnn train`
        split: which part of the data, as it was split for training; all for the whole of it
        dynamic: dynamic evaluation: the weights adapt to what was read; labelled as such
        beam: width of the search of a translator; 0 as trained
        batch: documents read side by side, which changes the speed and never the scores; 0 as
            trained
        device: where to compute: auto, cpu, cuda
    """
    changes: dict[str, Any] = {"data": data} if data else {}
    changes["batch"] = 1  # of training, of which there is none; a short text has no room for more
    if split == "all":
        changes["split"] = "all"
    if beam:
        changes["beam"] = beam
    if batch:
        changes["evaluation_batch"] = batch
    place = find_device(device)
    found = open_run(run, **changes)
    show = progress()
    job = found.prepare(show)
    splits = getattr(job.task, "contents", dict)()
    if splits and split not in splits:
        check.refuse("split", split, f"one that these data have: {', '.join(splits)}")
    model = found.weights(job.model).to(place)
    more: dict[str, Any] = {"dynamic": True} if dynamic else {}
    if beam:
        more["search"] = job.task.search
    with evaluating(show, f"evaluating {split}"), torch.no_grad():
        scores = job.task.evaluate(model, split, **more)
    # Rules that learned from other data than the model would be no comparison.
    rules = None if data else simple_rules(job.task, split, found.folder.path)
    plain = {name.removeprefix("dynamic_"): value for name, value in scores.items()}
    if rules is not None and (sentence := rules.sentence(plain)):
        say(sentence)
    table = Table(box=None, show_header=False, padding=(0, 3, 0, 0))
    for name, value in scores.items():
        whole = float(value).is_integer()
        table.add_row(one_line(name), f"{value:,.0f}" if whole else f"{value:.6f}")
    console().print(table)
    for line in () if rules is None else rules.lines(plain):
        say(line)
    if split == "valid" and getattr(found.config, "refit", False) and not data:
        say("no score on held-out data: this model was trained on the validation data as well")
    if data:
        say("no simple rules: they would learn from other data than this model did")
    for line in getattr(found.entry, "footnotes", lambda job: ())(job):
        say(line)
