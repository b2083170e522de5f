"""What data are, told from a look at them: a text, pairs, labelled sequences, or series."""

from __future__ import annotations

import json
import re
from pathlib import Path

from metarnn.cells import check
from metarnn.tasks.classification.embedded import EMBEDDED as LABELLED
from metarnn.tasks.classification.images import SUFFIXES as IMAGES
from metarnn.tasks.forecasting.embedded import EMBEDDED as SERIES
from metarnn.tasks.language.source import EMBEDDED as TEXTS
from metarnn.tasks.look.content import count, ending, is_number, is_text, lines, repeats
from metarnn.tasks.look.finding import Finding
from metarnn.tasks.look.tables import columns
from metarnn.tasks.packed import CONVERSIONS, CONVERTED, table_content
from metarnn.tasks.translation.generated import GENERATED as PAIRS

__all__ = ["Finding", "look"]

EMBEDDED = {
    "lm": TEXTS,
    "translation": PAIRS,
    "classification": LABELLED,
    "forecasting": SERIES,
}
TASKS = ("lm", "translation", "classification", "forecasting")


def look(data: str, task: str = "auto") -> Finding:
    """What is there, and what to learn from it; with `task`, what to set for that one.

    >>> look("sunspots").task
    'forecasting'

    A ValueError says what is not clear, and what would settle it.
    """
    check.one_of("task", task, ("auto", *TASKS))
    found = [f for f in _possible(data) if task in ("auto", f.task)]
    if task != "auto":
        told = (f"as {task}, which --task says",)
        return found[0] if found else Finding(task, told, data)
    if len(found) > 1:
        choices = "; or ".join(f"--task {f.task} ({f.about[-1]})" for f in found)
        raise ValueError(f"{data} could be several things. Say which: {choices}")
    if not found:
        raise ValueError(
            f"{data}: it is not clear what to learn from this. Say --task, one of {TASKS}"
        )
    return found[0]


def _possible(data: str) -> list[Finding]:
    """All that it could be, each with a reason."""
    for task, names in EMBEDDED.items():
        if data in names:
            return [Finding(task, (f"{data}: embedded data for {task}",), data)]
    if data == "-":
        raise ValueError(
            "data='-': expected a file, since it is read more than once. Save it to one"
        )
    if data.startswith("hf:"):
        return [_text(data, "a dataset's texts")]
    path = Path(data)
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        return _file(path)
    if aligned := _aligned(path):
        return [aligned]
    if any(c in data for c in "*?["):
        return [_text(data, "all files of a pattern, as one text")]
    embedded_names = ", ".join(name for names in EMBEDDED.values() for name in names)
    raise FileNotFoundError(f"{data}: no such file or folder. At hand: {embedded_names}")


def _text(data: str, what: str) -> Finding:
    return Finding("lm", (f"{data}: {what}", "a text: a model that goes on writing it"), data)


# Folders.


def _folder(path: Path) -> list[Finding]:
    inside = [p for p in sorted(path.iterdir()) if not p.name.startswith(".")]
    folders = [p for p in inside if p.is_dir()]
    files = [p for p in inside if p.is_file()]
    if any(p.name.lower() == "train" for p in folders):
        return _classes(next(p for p in folders if p.name.lower() == "train"), path)
    train = [p for p in files if re.search(r"train", p.name, re.IGNORECASE)]
    known = (".ts", ".npz", ".csv", ".tsv", ".jsonl")
    if train and all(ending(p) in known for p in train):
        return [_whole(f, path) for f in _file(train[0])]
    if len(train) >= 2 and (found := _aligned(path / train[0].name.split(".")[0])):
        return [_whole(found, path)]
    if len(folders) > 1 and not files:
        return _classes(path, path)
    if not inside:
        raise ValueError(f"{path} is an empty folder")
    odd = next((p for p in path.rglob("*") if p.is_file() and not is_text(p)), None)
    if odd is not None:
        raise ValueError(
            f"{path}: {odd.relative_to(path)} is no text. Name one file, or say --task"
        )
    if len(files) == 1 and not folders:
        return _file(files[0])
    return [_text(str(path), f"a folder of {len(inside)} texts")]


def _whole(found: Finding, folder: Path) -> Finding:
    """What was found of a training file, for the folder with all its splits."""
    data = str(folder) if found.task == "translation" else found.data
    return Finding(found.task, found.about, data, found.settings)


def _classes(folder: Path, whole: Path) -> list[Finding]:
    """A folder with folders in it, which may be classes."""
    names = [p for p in sorted(folder.iterdir()) if p.is_dir() and p.name[0] != "."]
    kinds = {p.suffix.lower() for name in names for p in name.rglob("*") if p.is_file()}
    about = f"{whole}: {len(names)} folders ({', '.join(p.name for p in names[:4])}, …)"
    if names and kinds and kinds <= set(IMAGES):
        why = "a folder a class, with images: a classifier of them"
        return [Finding("classification", (about, why), str(whole))]
    if len(names) > 1 and kinds == {".txt"}:
        why = "a folder a class, with texts: a classifier of them"
        one = Finding("classification", (about, why), str(whole))
        return [one, _text(str(whole), f"{about}, all of it one text")]
    return [_text(str(whole), about)]


# Files.


def _file(path: Path) -> list[Finding]:
    kind = ending(path)
    if kind in (".ts", ".npz"):
        what = "the UCR/UEA format" if kind == ".ts" else "arrays x and y"
        about = (f"{path}: {what}", "labelled sequences: a classifier of them")
        return [Finding("classification", about, str(path))]
    if kind == ".jsonl":
        return _json_lines(path)
    if kind == ".tsv":
        return columns(path, "\t")
    if kind in (".csv", *CONVERTED):
        return columns(path, ",")
    if aligned := _aligned(path.with_suffix(""), path.suffix[1:]):
        return [aligned]
    if kind in CONVERSIONS:
        table_content(path)  # refuses, and says how to convert it
    if not is_text(path):
        if b"\0" not in path.read_bytes()[: 1 << 16]:
            iconv = f"iconv -f ISO-8859-1 -t UTF-8 {path} > NEW"
            raise ValueError(f"{path} is not UTF-8. If it is an older text: {iconv}")
        advice = "For a file of any kind there is `metarnn train lm --level byte`."
        raise ValueError(f"{path} is no text, and no format that is known by its ending. {advice}")
    rows = [line.split("\t") for line in lines(path)]
    if rows and all(len(row) == 2 for row in rows) and repeats([row[0] for row in rows]):
        why = "a label, a tab and a text in each line: a classifier of texts"
        return [Finding("classification", (f"{path}: {count(path)} lines", why), str(path))]
    if _are_pairs(rows):
        why = "two texts in each line with a tab between them: from the first to the second"
        return [Finding("translation", (f"{path}: {count(path):,} lines", why), str(path))]
    return [_text(str(path), f"{path.stat().st_size:,} bytes of text")]


def _are_pairs(rows: list[list[str]]) -> bool:
    """Whether all rows have as many columns, and the first two are texts."""
    if len(rows[0]) < 2 or len({len(row) for row in rows}) > 1:
        return False
    sides = [[row[k] for row in rows] for k in (0, 1)]
    return not any(repeats(side) or any(map(is_number, side)) for side in sides)


def _json_lines(path: Path) -> list[Finding]:
    rows = []
    for number, line in enumerate(lines(path), 1):
        try:
            row = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            raise ValueError(f"{path}, line {number}: this is no JSON") from None
        if row is not None and not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected an object, {{…}}")
        rows += [] if row is None else [row]
    if not rows:
        raise ValueError(f"{path} is empty")
    row = rows[0]
    about = f"{path}: {count(path)} JSON lines with {', '.join(row)}"
    inputs = "x" in row or "text" in row
    if inputs and any(key in row for key in ("label", "tags", "labels", "target")):
        why = "a sequence and its label in each line: a classifier of them"
        return [Finding("classification", (about, why), str(path))]
    row = row["translation"] if isinstance(row.get("translation"), dict) else row
    texts = [key for key, value in row.items() if isinstance(value, str)]
    if {"source", "target"} <= set(texts):
        texts = ["source", "target"]
    if len(texts) == 2:
        why = f"two texts in each line: from {texts[0]} to {texts[1]}"
        sides = {"source": texts[0], "target": texts[1]}
        return [Finding("translation", (about, why), str(path), sides)]
    expected = "a sequence (x or text) with a label, or two texts (source and target)"
    raise ValueError(f"{about}: expected {expected}. Name the keys so")


def _aligned(prefix: Path, first: str = "") -> Finding | None:
    """Two files that are called the same but for their endings, with as many lines each."""
    if not prefix.name or not prefix.parent.is_dir():
        return None
    beside = sorted(p for p in prefix.parent.iterdir() if p.is_file() and p.stem == prefix.name)
    sides = [p for p in beside if re.fullmatch(r"\.[a-z]{2,3}([_-][A-Za-z]{2,4})?", p.suffix)]
    sides = [
        p for p in sides if p.suffix not in (".txt", ".csv", ".tsv", ".npz", ".ts", ".md", ".py")
    ]
    if len(sides) != 2 or (first and first not in [p.suffix[1:] for p in sides]):
        return None
    if not all(map(is_text, sides)) or len({count(p) for p in sides}) > 1:
        return None
    sides.sort(key=lambda p: p.suffix[1:] != first)
    source, target = (p.suffix[1:] for p in sides)
    about = (
        f"{sides[0]} and {sides[1]}: {count(sides[0]):,} lines each",
        f"line by line the same in two languages: from {source} to {target}",
    )
    return Finding("translation", about, str(prefix), {"source": source, "target": target})
