"""Small data of every task and kind of source, and changes to what is held out in them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metarnn.tasks.classification.embedded import EMBEDDED as GENERATED_LABELLED
from metarnn.tasks.forecasting.embedded import EMBEDDED as PANELS
from metarnn.tasks.language import split as texts_split
from metarnn.tasks.language.source import Document, embedded, from_text
from metarnn.tasks.translation.generated import GENERATED

SPLITS = ("train", "valid", "test")
FLAGS: dict[str, dict[str, Any]] = {
    "lm": {"embedding": 4, "width": 4, "batch": 2, "length": 8, "engine": "eager"},
    "translation": {"embedding": 4, "width": 4, "batch": 4, "engine": "eager"},
    "classification": {"width": 4, "batch": 4, "engine": "eager", "split": "60/20/20"},
    "forecasting": {"width": 4, "batch": 4, "engine": "eager", "horizon": 2, "members": 1},
    "fewshot": {"family": "characters", "method": "maml", "width": 4, "batch": 2, "tasks": 2,
                "length": 8, "shots": 2, "queries": 2},
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Data of a task.

    write   writes them into a folder; returns what --data is
    change  changes the contents of a split, not how many examples it has, where the data were
            written: change(data, split, task, patch)
    flags   settings beyond those of the task
    shrink  makes data that are generated or come with Python small
    """

    task: str
    write: Callable[[Path], str]
    change: Callable[[str, str, Any, pytest.MonkeyPatch], None]
    flags: dict[str, Any] = field(default_factory=dict)
    shrink: Callable[[pytest.MonkeyPatch], None] = lambda patch: None

    @property
    def settings(self) -> dict[str, Any]:
        return FLAGS[self.task] | self.flags

    def arguments(self, data: str) -> list[str]:
        """The flags of `metarnn train` for these data."""
        flags = {"data": data, **self.settings}
        return [part for name, value in flags.items()
                for part in (f"--{name.replace('_', '-')}", str(value))]  # fmt: skip


def words(seed: int, count: int = 200) -> str:
    return "".join(np.random.default_rng(seed).choice(["ab ", "cd ", "efg "], count))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def other_text(path: Path) -> None:
    """Characters that were nowhere before, as many bytes."""
    path.write_text("".join("XYZ\n"[k % 4] for k in range(path.stat().st_size)))


# Language


def text_file(folder: Path) -> str:
    return str(write(folder / "text.txt", words(0, 2000)))


def change_text_file(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    text, sizes = Path(data).read_text(), [len(task.corpus[name].tokens) for name in SPLITS]
    begin = sum(sizes[: SPLITS.index(split)])
    end = begin + sizes[SPLITS.index(split)]
    Path(data).write_text(text[:begin] + "X" * (end - begin) + text[end:])


def texts(folder: Path) -> str:
    for k in range(12):
        write(folder / "texts" / f"{k:02}.txt", words(k))
    return str(folder / "texts")


def change_texts(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    for name in task.corpus[split].names:
        other_text(Path(data) / name)


def named_texts(folder: Path) -> str:
    for k, split in enumerate(SPLITS):
        write(folder / "named" / f"text.{split}.txt", words(k, 400 if split == "train" else 100))
    return str(folder / "named")


def change_named_texts(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    other_text(Path(data) / f"text.{split}.txt")


def shrink_pydoc(patch: pytest.MonkeyPatch) -> None:
    few = [from_text(d.name, "".join(d.text())[:600]) for d in embedded("pydoc")[:20]]
    patch.setattr(texts_split, "embedded", lambda name: few)


def change_pydoc(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    names = set(task.corpus[split].names)

    def changed(name: str) -> list[Document]:
        return [from_text(d.name, "X" * d.size) if d.name in names else d for d in embedded(name)]

    patch.setattr(texts_split, "embedded", changed)


# Translation


def pairs(folder: Path) -> str:
    rows = [f"word {k}\t{k:03}" for k in range(120)]
    return str(write(folder / "pairs.tsv", "\n".join(rows) + "\n"))


def change_pairs(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    held_out = set(task.corpus[split].pairs.source)
    lines = [line.split("\t") for line in Path(data).read_text().splitlines()]
    rows = [f"{x}\t{'new answer, ' * 9 if x in held_out else y}\n" for x, y in lines]
    Path(data).write_text("".join(rows))


def named_pairs(folder: Path) -> str:
    for split, count in zip(SPLITS, (60, 12, 14), strict=True):
        for side, word in (("de", "wort"), ("en", "word")):
            lines = [f"{word} {split} {k}\n" for k in range(count)]
            write(folder / "pairs" / f"{split}.{side}", "".join(lines))
    return str(folder / "pairs")


def change_named_pairs(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    for side in ("de", "en"):
        path = Path(data) / f"{split}.{side}"
        path.write_text("".join(f"XYZ {line}" for line in path.read_text().splitlines(True)))


def shrink_dates(patch: pytest.MonkeyPatch) -> None:
    few = {split: made[:40] for split, made in GENERATED["dates"](0).items()}
    patch.setitem(GENERATED, "dates", lambda seed: few)


def change_dates(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    made = GENERATED[data](0)
    longer = {**made, split: [(x + "XYZ", 9 * y + "XYZ") for x, y in made[split]]}
    patch.setitem(GENERATED, data, lambda seed: longer)


# Classification


def labelled(folder: Path) -> str:
    random, path = np.random.default_rng(0), folder / "labelled.npz"
    folder.mkdir(exist_ok=True)
    np.savez(path, x=random.standard_normal((60, 5, 2)).astype(np.float32), y=np.arange(60) % 3)
    return str(path)


def change_labelled(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    arrays = dict(np.load(data))
    for k in range(len(arrays["x"])):
        if any(np.array_equal(arrays["x"][k], x) for x in task.data[split].x):
            arrays["x"][k] = 100 * arrays["x"][k] + 7
            arrays["x"][k, 0, 0] = np.nan
    np.savez(data, **arrays)


def labelled_texts(folder: Path) -> str:
    rows = [f"{'ab'[k % 2]}\t{words(k, 5)}{k:03}\n" for k in range(60)]
    return str(write(folder / "labelled.txt", "".join(rows)))


def change_labelled_texts(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    part = {task.data[split].x[k].tobytes() for k in range(len(task.data[split]))}
    alphabet, lines = task.data.scheme.alphabet, Path(data).read_text().splitlines(True)
    rows = []
    for line in lines:
        label, _, text = line.rstrip("\n").partition("\t")
        numbers = np.array([alphabet.find(c) + 1 for c in text], np.int64)
        rows.append(f"{label}\t{text}{'XYZ' * 20}\n" if numbers.tobytes() in part else line)
    assert rows != lines
    Path(data).write_text("".join(rows))


def tagged(folder: Path) -> str:
    random, rows = np.random.default_rng(0), []
    for _ in range(50):
        steps = int(random.integers(4, 9))
        x, time = random.standard_normal(steps), np.cumsum(random.integers(1, 4, steps))
        tags = [str(int(v > 0)) for v in x]
        rows.append(json.dumps({"x": x.tolist(), "time": time.tolist(), "tags": tags}))
    rows.append(json.dumps({"x": [9.0, 9.0], "time": [1, 2], "tags": ["rare", "rare"]}))
    return str(write(folder / "tagged.jsonl", "\n".join(rows) + "\n"))


def change_tagged(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    part = {x.tobytes() for x in task.data[split].x}
    rows = []
    for line in Path(data).read_text().splitlines():
        row = json.loads(line)
        if np.array(row["x"], np.float32)[:, None].tobytes() in part:
            row["x"] = [100 * v + 7 for v in row["x"]]
            row["time"] = [50 * t for t in row["time"]]
        rows.append(json.dumps(row))
    Path(data).write_text("\n".join(rows) + "\n")


def named_labelled(folder: Path) -> str:
    for split, count in zip(SPLITS, (40, 12, 14), strict=True):
        x = np.random.default_rng(count).standard_normal((count, 6))
        rows = [",".join(map(str, [*row, k % 2])) for k, row in enumerate(x.tolist())]
        write(folder / "set" / f"set_{split}.csv", "a,b,c,d,e,f,label\n" + "\n".join(rows) + "\n")
    return str(folder / "set")


def change_named_labelled(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    path = Path(data) / f"set_{split}.csv"
    head, *rows = path.read_text().splitlines()
    changed = [",".join(["9e3", "", *row.split(",")[2:]]) for row in rows]
    path.write_text("\n".join([head, *changed]) + "\n")


def shrink_digits(patch: pytest.MonkeyPatch) -> None:
    kind, make, _ = GENERATED_LABELLED["digits"]
    patch.setitem(GENERATED_LABELLED, "digits", (kind, make, 100))


def change_digits(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("metarnn.tasks.classification.load")
    made = module.generate
    part = {x.tobytes() for x in task.data[split].x}

    def changed(name: str) -> Any:
        kind, examples = made(name)
        return kind, [
            replace(e, x=100 * e.x + 7) if np.asarray(e.x, np.float32).tobytes() in part else e
            for e in examples
        ]

    patch.setattr(module, "generate", changed)


# Forecasting


def series(folder: Path) -> str:
    """Days with a column that is known ahead and one that is not, each with a hole at the end of
    the training part."""
    random, rows = np.random.default_rng(0), ["date,value,sale,price"]
    for k in range(200):
        day = np.datetime64("2020-01-01") + k
        value, sale, price = k % 7 + random.random(), k % 5, random.random()
        rows.append(f"{day}," + (",," if k == 139 else f"{value},{sale},{price}"))
    return str(write(folder / "series.csv", "\n".join(rows) + "\n"))


def undated(folder: Path) -> str:
    random = np.random.default_rng(0)
    rows = [f"{np.sin(k / 3) + 0.1 * random.random()}" for k in range(200)]
    return str(write(folder / "undated.csv", "\n".join(["value", *rows]) + "\n"))


def change_series(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    start, end = task.windows.parts[0][split]
    head, *rows = Path(data).read_text().splitlines()
    for k in range(start, end):
        date, *numbers = row if len(row := rows[k].split(",")) > 1 else ["", *row]
        changed = [str(100 * float(number) + 50 * (k % 2)) for number in numbers]
        rows[k] = ",".join([date, *changed] if date else changed)
    Path(data).write_text("\n".join([head, *rows]) + "\n")


def change_sunspots(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    start, end = task.windows.parts[0][split]
    panel = PANELS[data]()
    values = panel.series[0].values.copy()
    values[start:end] = 500 * (np.arange(end - start) % 5)[:, None]
    changed = replace(panel, series=(replace(panel.series[0], values=values),))
    patch.setitem(PANELS, data, lambda: changed)


# Few-shot learning


def change_characters(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    for name in task.family.texts[split]:
        other_text(Path(data) / name)


def sequences(folder: Path) -> str:
    random = np.random.default_rng(0)
    for k in range(15):
        for example in range(4):
            rows = random.standard_normal((5, 2)) + k
            lines = "".join(f"{a},{b}\n" for a, b in rows)
            write(folder / "classes" / f"{k:02}" / f"{example}.csv", lines)
    return str(folder / "classes")


def change_sequences(data: str, split: str, task: Any, patch: pytest.MonkeyPatch) -> None:
    for name in task.family.bank[split]:
        for path in (Path(data) / name).iterdir():
            path.write_text(10 * path.read_text().replace(".", "8."))


CLASSES = {"family": "sequences", "ways": 2, "shots": 1, "queries": 1, "length": 5}
DEALT = {"split": "80/10/10"}
COVARIATES = {"targets": "value", "known": "sale", "observed": "price"}
SOURCES = {
    "lm, embedded": Source("lm", lambda folder: "pydoc", change_pydoc, shrink=shrink_pydoc),
    "lm, file": Source("lm", text_file, change_text_file),
    "lm, folder": Source("lm", texts, change_texts, DEALT),
    "lm, words": Source("lm", texts, change_texts, {"level": "word", **DEALT}),
    "lm, named splits": Source("lm", named_texts, change_named_texts),
    "translation, generated": Source(
        "translation", lambda folder: "dates", change_dates, shrink=shrink_dates
    ),
    "translation, file": Source("translation", pairs, change_pairs),
    "translation, named splits": Source(
        "translation", named_pairs, change_named_pairs, {"source": "de", "target": "en"}
    ),
    "classification, generated": Source(
        "classification", lambda folder: "digits", change_digits, shrink=shrink_digits
    ),
    "classification, file": Source("classification", labelled, change_labelled),
    "classification, texts": Source("classification", labelled_texts, change_labelled_texts),
    "classification, tags": Source("classification", tagged, change_tagged),
    "classification, named splits": Source(
        "classification", named_labelled, change_named_labelled
    ),
    "forecasting, embedded": Source("forecasting", lambda folder: "sunspots", change_sunspots),
    "forecasting, file": Source("forecasting", series, change_series, COVARIATES),
    "forecasting, undated": Source("forecasting", undated, change_series),
    "fewshot, texts": Source("fewshot", texts, change_characters),
    "fewshot, classes": Source("fewshot", sequences, change_sequences, CLASSES),
}  # fmt: skip
