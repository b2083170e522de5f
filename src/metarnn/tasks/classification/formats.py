"""Labelled sequences in files: .ts, CSV, JSON lines, .npz, text, images."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metarnn.graph.files import text as content_text
from metarnn.tasks.classification.examples import Example, Found, Kind
from metarnn.tasks.classification.images import SUFFIXES as IMAGES
from metarnn.tasks.classification.images import read_image
from metarnn.tasks.classification.ts import read_ts, read_ucr
from metarnn.tasks.classification.values import number, time_of, trimmed, wrong
from metarnn.tasks.packed import CONVERSIONS, table_content
from metarnn.tasks.packed import arrays as read_arrays
from metarnn.tasks.rows import csv_rows

LABELS = ("label", "class", "target", "y")
GROUPS = ("id", "sequence", "series", "case_id")
TIMES = ("time", "t", "timestamp")
FEW = 40  # rows, in as many of which texts differ


def read_csv(path: Path) -> Found:
    """CSV with a header. With a column `id`, `sequence` or `series` a row is a step; else a row is
    a sequence of its numeric columns, or a `text`. The label is in the column `label`, `class`,
    `target` or `y`, or the last. Where the labels of one sequence differ, they are tags. Texts may
    be called otherwise, where there is one column of sentences and one whose values repeat."""
    rows = csv_rows(path, "\t" if path.suffix == ".tsv" else "")
    if len(rows) < 2:
        raise ValueError(f"{path}: expected a header and at least one row")
    names = [name.strip().lower() for name in rows[0]]
    columns = {name: [row[k].strip() for row in rows[1:]] for k, name in enumerate(names)}
    group = next((name for name in GROUPS if name in columns), None)
    label = next((name for name in LABELS if name in columns), None)
    if (texts := text_columns(columns)) is not None:
        text, label = texts
        labels = columns[label] if label else [""] * (len(rows) - 1)
        pairs = zip(columns[text], labels, strict=True)
        return "one", [Example(text, name or None) for text, name in pairs]
    if label is None and group is None:
        label = names[-1]
    when = next((name for name in TIMES if name in columns), None) if group else None
    values = [name for name in names if name not in (group, label, when)]
    try:
        x = np.array([[number(v) for v in columns[name]] for name in values], np.float32).T
    except ValueError as error:
        raise ValueError(f"{path}: {error}, in one of the columns {', '.join(values)}") from None
    if group is None:
        labels = columns[label] if label else [None] * len(x)
        return "one", [
            Example(trimmed(row)[:, None], name or None)
            for row, name in zip(x, labels, strict=True)
        ]
    return _grouped(x, columns, group, label, when)


def text_columns(columns: Mapping[str, Sequence[str]]) -> tuple[str, str | None] | None:
    """The names of the column of texts and of that of their labels, if there is one.

    >>> text_columns({"review": ["so good", "so bad", "oh no"], "stars": ["5", "1", "1"]})
    ('review', 'stars')
    """
    label = next((name for name in LABELS if name in columns), None)
    if "text" in columns:
        return "text", label
    spaced = {name: sum(" " in value.strip() for value in c) for name, c in columns.items()}
    texts = [name for name, c in columns.items() if 2 * spaced[name] > len(c)]
    if len(texts) != 1 or len(columns) > 4:
        return None
    text, rows = texts[0], len(columns[texts[0]])
    if 2 * len(set(columns[text])) <= min(rows, FEW):  # classes with names of two words
        return None
    few = [n for n, c in columns.items() if n != text and len(set(c)) <= max(rows // 4, 2)]
    if label is None and len(few) == 1:
        label = few[0]
    return (text, label) if label is not None or len(columns) == 1 else None


def _grouped(
    x: np.ndarray, columns: dict[str, list[str]], group: str, label: str | None, when: str | None
) -> Found:
    """Sequences of the rows that share an id, in the order in which they come or by their time."""
    places: dict[str, list[int]] = {}
    for k, name in enumerate(columns[group]):
        places.setdefault(name, []).append(k)
    tags = label is not None and any(
        len({columns[label][k] for k in members}) > 1 for members in places.values()
    )
    examples = []
    for members in places.values():
        times = None
        if when is not None:
            times = np.array([time_of(columns[when][k]) for k in members])
            order = np.argsort(times, kind="stable")
            times, members = times[order], [members[k] for k in order]
        named = tuple(columns[label][k] for k in members) if label else ("",)
        found = (named if tags else named[0] or None) if label else None
        examples.append(Example(x[members], found, times))
    return ("tags" if tags else "one"), examples


def read_jsonl(path: Path) -> Found:
    """An object a line: `x` (numbers, rows of numbers or a text; also `text`), `time`, and one of
    `label`, `tags` (one a step), `labels` (all that hold), `target` (in their order, no place)."""
    kinds: dict[str, Kind] = {"label": "one", "tags": "tags", "labels": "multi", "target": "ctc"}
    kind: Kind | None = None
    examples = []
    for at, line in enumerate(content_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            key = next((key for key in kinds if key in row), None)
            if key is not None and kind not in (None, kinds[key]):
                raise ValueError(f"{key!r}, but lines before have labels of another kind")
            kind = kinds[key] if key else kind
            label = row.get(key) if key else None
            if isinstance(label, list):
                label = tuple(map(str, label))
            elif label is not None:
                label = tuple(label) if key == "target" else str(label)
            times = row.get("time")
            times = None if times is None else np.array([time_of(t) for t in times], np.float64)
            x = row["x"] if "x" in row else row["text"]
            examples.append(Example(x if isinstance(x, str) else _rows(x), label, times))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise wrong(path, at, str(error)) from None
        except KeyError:
            raise wrong(path, at, "there is no 'x' and no 'text'") from None
    return kind or "one", examples


def read_npz(path: Path) -> Found:
    """Arrays `x` [N, T] or [N, T, C] and `y`, perhaps `lengths` [N] and `times` [N, T]; y is [N],
    [N, T] (tags) or, of 0 and 1 in fewer columns than steps, [N, K] (several labels)."""
    return _arrays(_named(path), str(path))


def read_npz_splits(path: Path) -> dict[str, Found] | None:
    """The splits of a file with `x_train`, `y_train`, `x_test`, … in it."""
    arrays = _named(path)
    splits = [name[2:] for name in arrays if name.startswith("x_")]
    return {
        split: _arrays(
            {n.removesuffix(f"_{split}"): arrays[n] for n in arrays if n.endswith(split)},
            f"{path} ({split})",
        )
        for split in splits
    } or None


def _named(path: Path) -> dict[str, np.ndarray]:
    """Arrays by their names here: `X` is x, `labels` are y."""
    lower = {name.lower(): array for name, array in read_arrays(path).items()}
    same = {"data": "x", "labels": "y", "label": "y", "target": "y", "targets": "y"}
    return {n if (s := same.get(n, n)) in lower else s: array for n, array in lower.items()}


def _arrays(arrays: dict[str, np.ndarray], source: str) -> Found:
    if "x" not in arrays:
        raise ValueError(f"{source}: has {', '.join(arrays)}; expected x, y")
    x = arrays["x"]
    x = x[:, :, None] if x.ndim == 2 else x
    if x.ndim != 3 or x.dtype.kind not in "biuf":
        found = f"the shape {x.shape} of {x.dtype}"
        raise ValueError(f"{source}: x has {found}; expected numbers [N, T] or [N, T, C]")
    n, steps, _ = x.shape
    lengths = arrays.get("lengths", np.full(n, steps))
    if lengths.shape != (n,) or lengths.dtype.kind not in "iu" or not _within(lengths, steps):
        found = f"the shape {lengths.shape} of {lengths.dtype}"
        raise ValueError(f"{source}: lengths has {found}; expected [{n}] from 1 to {steps}")
    times = arrays.get("times")
    if times is not None and (times.shape != (n, steps) or times.dtype.kind not in "biuf"):
        found = f"the shape {times.shape} of {times.dtype}"
        raise ValueError(f"{source}: times has {found}; expected numbers [{n}, {steps}]")
    y, kind = arrays.get("y"), "one"
    if y is not None and (y.ndim not in (1, 2) or len(y) != n):
        raise ValueError(f"{source}: y has the shape {y.shape}; expected [{n}, …]")
    if y is not None and y.ndim == 2 and y.shape[1] > 1:
        kind = "tags" if y.shape[1] == steps else "multi"
    examples = []
    for k in range(n):
        stop, label = int(lengths[k]), None
        if y is not None and kind == "one":
            label = str(y[k].item())
        elif y is not None and kind == "tags":
            label = tuple(str(v) for v in y[k][:stop].tolist())
        elif y is not None:
            label = tuple(str(c) for c in np.flatnonzero(y[k]))
        when = None if times is None else times[k][:stop].astype(np.float64)
        examples.append(Example(x[k][:stop].astype(np.float32), label, when))
    return kind, examples


def _within(lengths: np.ndarray, steps: int) -> bool:
    return bool((lengths >= 1).all() and (lengths <= steps).all())


def read_text(path: Path) -> Found:
    """A text a line: `label<TAB>text`."""
    examples = []
    for at, line in enumerate(content_text(path).splitlines(), 1):
        label, tab, text = line.partition("\t")
        if not line.strip():
            continue
        if not tab:
            raise wrong(path, at, "expected label<TAB>text")
        examples.append(Example(text, label.strip() or None))
    return "one", examples


def read_folder(path: Path, pixels: bool = False) -> Found:
    """A folder a class, with images (sequences of rows, or of pixels) or texts in it."""
    examples: list[Example] = []
    for folder in sorted(p for p in path.iterdir() if p.is_dir() and p.name[0] != "."):
        for file in sorted(folder.rglob("*")):
            suffix = file.suffix.lower()
            if suffix in IMAGES:
                image = read_image(file)
                rows = (
                    image.reshape(-1, image.shape[2]) if pixels else image.reshape(len(image), -1)
                )
                examples.append(Example(rows, folder.name))
            elif suffix == ".txt":
                examples.append(Example(content_text(file), folder.name))
    if len({isinstance(e.x, str) for e in examples}) != 1:
        raise ValueError(f"{path}: expected a folder a class, with images or with .txt in them")
    return "one", examples


READERS: dict[str, Callable[[Path], Found]] = {
    ".ts": read_ts,
    ".csv": read_csv,
    ".tsv": lambda path: _tabbed(path)(path),
    ".jsonl": read_jsonl,
    ".npz": read_npz,
    ".txt": read_text,
    ".parquet": read_csv,
    ".zip": read_csv,
}


def read(path: Path) -> Found:
    """The examples of a file, by its ending."""
    reader = READERS.get(path.suffix.lower())
    if reader is None and path.suffix.lower() in CONVERSIONS:
        table_content(path)  # refuses, and says how to convert it
    if reader is None:
        raise ValueError(f"{path}: expected a file that ends in {', '.join(READERS)}")
    try:
        kind, examples = reader(path)
    except ValueError as error:
        raise error if str(path) in str(error) else ValueError(f"{path}: {error}") from None
    if not examples:
        raise ValueError(f"{path}: there is no example in it")
    return kind, examples


def _tabbed(path: Path) -> Callable[[Path], Found]:
    """What reads a file with tabs, told from its first line."""
    first = content_text(path).split("\n", 1)[0].lower().split("\t")
    if len(first) == 2 and "text" not in first:
        return read_text
    numbers = all(re.fullmatch(r"[-+\d.e]+", field.strip()) for field in first)
    return read_ucr if numbers else read_csv


def _rows(x: Sequence[Any]) -> np.ndarray:
    """Numbers, or rows of numbers, with null for what is missing, as [T, C]."""
    nested = [v if isinstance(v, list) else [v] for v in x]
    if not nested or not nested[0]:
        raise ValueError("'x' is empty: expected at least one step of one number")
    if len({len(v) for v in nested}) > 1:
        raise ValueError("rows of different lengths in 'x'")
    return np.array([[number(v) for v in row] for row in nested], np.float32)
