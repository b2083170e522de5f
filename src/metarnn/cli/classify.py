"""`metarnn classify RUN`: labels of new sequences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from metarnn.cells import check
from metarnn.cli import table
from metarnn.runs.classification import Config
from metarnn.runs.tasks import open_run, refuse_use
from metarnn.tasks.classification import Classifier, find, predict
from metarnn.tasks.pretrained import from_pretrained
from metarnn.training import Folder
from metarnn.training.world import find_device


def classify(
    run: Path, /, data: str = "", out: Path | None = None, pixels: bool = False, device: str = "cpu"
) -> None:
    """Label sequences with the model of a run folder, as CSV: an example a line, its label, how
    probable that is, and the probability of each class.

    metarnn classify runs/classification --data new.csv --out labels.csv

    Args:
        run: the run folder, or one written by save_pretrained
        data: what to label, as for `metarnn train classification`: a file, a folder, or what is
            generated, such as digits. Labels in it are not looked at
        out: a CSV file to write; by default standard output
        pixels: images were read pixel by pixel
        device: where to compute: auto, cpu, cuda
    """
    place = find_device(device)
    if Folder(run).config.exists() and not isinstance((own := open_run(run)).config, Config):
        refuse_use(run, "a classifier", own.entry)
    model = from_pretrained(run)
    if not isinstance(model, Classifier):
        check.refuse("run", str(run), "the folder of a classifier")
    if not data:
        check.refuse("data", data, "what to label, as in --data new.csv")
    scheme = model.scheme
    found = find(data, pixels)
    examples = [replace(e, label=None) for _, part in found.values() for e in part]
    part = scheme.number(examples)
    answers = predict(model.to(place), part)
    lines = [["example", "label", "probability", *scheme.classes]]
    if scheme.kind == "ctc":
        lines = [["example", "labels"]]
        lines += [
            [str(k + 1), " ".join(scheme.classes[c] for c in answer)]
            for k, answer in enumerate(answers)
        ]
    elif scheme.kind == "tags":
        lines = [["example", "step", *lines[0][1:]]]
        for k, rows in enumerate(answers):
            lines += [[str(k + 1), str(t), *_answer(p, scheme.classes)] for t, p in enumerate(rows)]
    elif scheme.kind == "multi":
        lines = [["example", "labels", *scheme.classes]]
        for k, p in enumerate(answers):
            held = " ".join(c for c, q in zip(scheme.classes, p, strict=True) if q > 0.5)
            lines.append([str(k + 1), held, *(f"{q:.4f}" for q in p)])
    else:
        lines += [[str(k + 1), *_answer(p, scheme.classes)] for k, p in enumerate(answers)]
    table.write(lines, out, f"{len(answers):,} examples labelled")


def _answer(p: np.ndarray, classes: tuple[str, ...]) -> list[str]:
    best = int(p.argmax())
    return [classes[best], f"{p[best]:.4f}", *(f"{q:.4f}" for q in p)]
