"""The formats of the UCR and UEA archives: .ts, and the older tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from metarnn.graph.files import content, text
from metarnn.tasks.classification.examples import Example, Found
from metarnn.tasks.classification.values import number, time_of, trimmed, wrong

# Numbers of a table for each character of its line: channels of very different lengths leave most
# of a table empty, and two of a million steps and channels would be a table of 10¹².
ROOM = 64


def read_ts(path: Path) -> Found:
    """The UCR/UEA format: `@` headers, then `v,v,…:v,v,…:label`, a dimension between colons.

    With `@timestamps true` a step is `(time,value)`.
    """
    header: dict[str, list[str]] = {}
    examples, data = [], False
    for at, line in enumerate(content(path).decode(errors="replace").split("\n"), 1):
        line = line.strip()
        if not line or line.startswith(("#", "%")):
            continue
        if not data:
            key, *rest = line[1:].split() or [""]
            if not line.startswith("@") or not key:
                raise wrong(path, at, f"{line[:40]!r} before @data")
            data = key.lower() == "data"
            header[key.lower()] = rest
            continue
        try:
            examples.append(_ts_case(line, header))
            _check_like_first(examples[-1], examples[0], header)
        except ValueError as error:
            raise wrong(path, at, str(error)) from None
    if not data:
        raise ValueError(f"{path}: there is no @data in it, so it is no .ts file")
    return "one", examples


def _ts_case(line: str, header: dict[str, list[str]]) -> Example:
    labelled = header.get("classlabel", ["true"])[:1] != ["false"]
    timed = [word.lower() for word in header.get("timestamps", [])[:1]] == ["true"]
    if timed:
        dimensions, label = _ts_timed(line, labelled)
        steps = sorted({t for dimension in dimensions for t in dimension})
        place = {t: k for k, t in enumerate(steps)}
        x = _empty(len(steps), len(dimensions), line)
        for channel, dimension in enumerate(dimensions):
            for t, value in dimension.items():
                x[place[t], channel] = value
        return Example(x, label, np.array(steps))
    *texts, label = line.split(":") if labelled else [*line.split(":"), ""]
    rows = [[number(v) for v in each.split(",")] for each in texts]
    if not rows:
        raise ValueError(f"{line[:40]!r} has no values before a label")
    x = _empty(max(map(len, rows)), len(rows), line)
    for channel, values in enumerate(rows):
        x[: len(values), channel] = values
    return Example(x, label.strip() or None if label.strip() != "?" else None)


def _check_like_first(example: Example, first: Example, header: dict[str, list[str]]) -> None:
    """Refuse another number of dimensions than the first example has, and a label of no class."""
    dimensions = np.shape(example.x)[1]
    if dimensions != np.shape(first.x)[1]:
        raise ValueError(
            f"it has {dimensions} dimension{'s' * (dimensions != 1)}, and the first example has "
            f"{np.shape(first.x)[1]}: expected as many in each, with colons between them"
        )
    classes = header.get("classlabel", [])[1:]
    if classes and example.label is not None and example.label not in classes:
        raise ValueError(f"the label {example.label!r}: expected one of @classLabel, {classes}")


def _ts_timed(line: str, labelled: bool) -> tuple[list[dict[float, float]], str | None]:
    """The (time,value) pairs of each dimension: colons part them, but stand in dates as well."""
    body, label = line, None
    if labelled:
        body, _, label = line.rpartition(":")
    dimensions: list[dict[float, float]] = [{}]
    body, at = body.strip(), 0
    while at < len(body):
        if body[at] == ":":
            dimensions.append({})
        elif body[at] == "(":
            end = body.find(")", at)
            when, comma, value = body[at + 1 : max(end, at)].rpartition(",")
            if end < 0 or not comma:
                raise ValueError(f"{body[at : at + 30]!r} is no (time,value)")
            dimensions[-1][time_of(when)] = number(value)
            at = end
        elif body[at] not in ", ":
            raise ValueError(f"{body[at : at + 30]!r} is no (time,value)")
        at += 1
    return dimensions, label


def _empty(steps: int, channels: int, line: str) -> np.ndarray:
    """[steps, channels] of missing numbers, if what is written in the line is in proportion."""
    if steps * channels > ROOM * len(line):
        raise ValueError(f"{channels:,} channels and {steps:,} steps, of which most are missing")
    return np.full((steps, channels), np.nan, np.float32)


def read_ucr(path: Path) -> Found:
    """The older UCR format: a label, then numbers with tabs between them; no header."""
    examples = []
    for at, line in enumerate(text(path).splitlines(), 1):
        label, *values = line.strip().split("\t")
        try:
            row = np.array([[number(value)] for value in values], np.float32)
        except ValueError as error:
            raise wrong(path, at, str(error)) from None
        if values:
            examples.append(Example(trimmed(row[:, 0])[:, None], label.strip()))
    return "one", examples
