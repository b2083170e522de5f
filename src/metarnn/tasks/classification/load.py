"""Labelled sequences by a name: a file, a pair of files, a folder, or what is generated here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from metarnn.cells import check
from metarnn.tasks.classification import formats
from metarnn.tasks.classification.embedded import EMBEDDED, generate
from metarnn.tasks.classification.examples import (
    KINDS,
    Dataset,
    Example,
    Found,
    Kind,
    Scheme,
    class_numbers,
    division,
    relabelled,
)

# With fewer training examples than this, what a validation set would say is mostly chance, and
# training needs them all.
ENOUGH = 300


def load(
    data: str = "digits",
    *,
    labels: Literal["auto", "one", "tags", "ctc", "multi"] = "auto",
    pixels: bool = False,
    split: str = "auto",
    scheme: Scheme | None = None,
    seed: int = 0,
) -> Dataset:
    """Labelled sequences, numbered and split.

    >>> digits = load("digits")
    >>> len(digits["train"]), len(digits["test"]), digits.scheme.classes[:3]
    (2160, 600, ('0', '1', '2'))

    Args:
        data: .ts, .csv, .jsonl, .npz, .txt, or a folder with one folder a class; NAME_TRAIN.ts is
            read with NAME_TEST.ts beside it, a folder with train.* and test.* as those; or what is
            generated: digits, shapes (tags), morse (ctc), tones (multi), visits (missing values)
        labels: how labels are meant, where the file does not tell
        pixels: read images pixel by pixel instead of row by row
        split: shares of train, valid and test where files do not tell; auto sets a fifth aside for
            testing, and a tenth of the training examples for validation where they are many
        scheme: of a model that was trained before; by default that of the training examples
        seed: of the split
    """
    kinds, found = {}, {}
    for name, (kind, examples) in find(data, pixels).items():
        kinds[name] = kind if labels == "auto" else _kind(labels)
        found[name] = relabelled(examples, kinds[name])
    if len(set(kinds.values())) > 1:
        check.refuse("labels", kinds, "labels of one kind in all files")
    kind = next(iter(kinds.values()))
    if "all" in found and split == "all" and scheme is not None:
        return Dataset(scheme, {"all": scheme.number(_labelled(found["all"]))})
    labelled = {name: _labelled(examples) for name, examples in found.items()}
    places = _divided(labelled, kind, split, seed)
    if scheme is None:
        source, numbers = places.get("train", ("train", []))
        scheme = Scheme.of(kind, _labelled([labelled[source][k] for k in numbers]))
    if "all" in labelled and _shares(split)[2] and not len(places["test"][1]):
        raise ValueError(
            f"{data} has {len(labelled['all'])} examples, too few to hold some out for the test: "
            "one of each class stays in training. Add examples"
        )
    numbered = {name: scheme.number(each, fill=True) for name, each in labelled.items()}
    parts = {name: numbered[source].take(numbers) for name, (source, numbers) in places.items()}
    return Dataset(scheme, {n: parts[n] for n in ("train", "valid", "test") if n in parts})


def _divided(
    labelled: Mapping[str, list[Example]], kind: Kind, split: str, seed: int
) -> dict[str, tuple[str, Sequence[int]]]:
    """The examples of each split, as the file that they are in and their numbers there."""
    shares, classes = _shares(split), {n: class_numbers(each) for n, each in labelled.items()}
    places: dict[str, tuple[str, Sequence[int]]]
    places = {name: (name, range(len(each))) for name, each in labelled.items()}
    if places.pop("all", None):
        train, test = division(classes["all"], kind, shares[2], seed)
        places |= {"train": ("all", train), "test": ("all", test)}
    if "valid" not in places and {"train", "test"} <= places.keys():
        share = shares[1] / max(shares[0] + shares[1], 1e-9)
        source, train = places["train"]
        if share and (split != "auto" or len(train) >= ENOUGH):
            own = [classes[source][k] for k in train]
            rest, apart = division(own, kind, share, seed + 1)
            places["train"] = source, [train[k] for k in rest]
            places["valid"] = source, [train[k] for k in apart]
    return places


def find(data: str, pixels: bool = False) -> Mapping[str, Found]:
    """The examples of each split that names tell; "all" where none does."""
    if data in EMBEDDED:
        return {"all": generate(data)}
    path = Path(data)
    if path.is_dir():
        return _folder(path, pixels)
    if not path.exists():
        raise FileNotFoundError(
            f"{data}: no such file or folder. Generated here: {', '.join(EMBEDDED)}"
        )
    if path.suffix == ".npz" and (splits := formats.read_npz_splits(path)):
        return splits
    if re.search(r"train", path.stem, re.IGNORECASE):
        others = {split: _sibling(path, split) for split in ("valid", "test")}
        files = {split: other for split, other in others.items() if other is not None}
        if files:
            return {split: formats.read(file) for split, file in ({"train": path} | files).items()}
    return {"all": formats.read(path)}


def _sibling(path: Path, split: str) -> Path | None:
    """The file whose name has `split` where this one's has "train"."""
    for word in (split, split.upper(), split.title()):
        other = path.with_name(re.sub(r"(?i)train(?!.*train)", word, path.name))
        if other.exists() and other != path:
            return other
    return None


def _folder(path: Path, pixels: bool) -> Mapping[str, Found]:
    folders = {p.name.lower(): p for p in path.iterdir() if p.is_dir()}
    if "train" in folders:
        names = [name for name in ("train", "valid", "test") if name in folders]
        return {name: formats.read_folder(folders[name], pixels) for name in names}
    trains = [
        p for p in sorted(path.iterdir())
        if p.suffix.lower() in formats.READERS and "train" in p.stem.lower()
    ]  # fmt: skip
    # Archives of UCR sets have the same examples as .ts, .arff and .txt.
    trains = [p for p in trains if p.suffix.lower() == ".ts"] or trains
    if len(trains) == 1:
        return find(str(trains[0]), pixels)
    if trains:
        names = ", ".join(p.name for p in trains)
        check.refuse("data", str(path), f"one training file, not {names}", "Name one of them.")
    return {"all": formats.read_folder(path, pixels)}


def _labelled(examples: list[Example]) -> list[Example]:
    if not examples:
        check.refuse("data", "no training examples", "at least one file of them")
    missing = sum(e.label is None for e in examples)
    if missing:
        check.refuse("labels", f"{missing} missing", "a label for every example")
    return examples


def _kind(labels: str) -> Kind:
    return check.one_of("labels", labels, KINDS)  # type: ignore[return-value]


def _shares(split: str) -> tuple[float, float, float]:
    if split in ("auto", "all"):
        return 0.72, 0.08, 0.2
    try:
        numbers = [float(n) for n in split.split("/")]
    except ValueError:
        numbers = []
    usable = len(numbers) in (2, 3) and all(0 <= n < 1e6 for n in numbers)  # false for NaN
    if not usable or numbers[0] == 0:
        check.refuse("split", split, "shares of train, valid and test, as in 70/10/20 or 80/20")
    train, *valid, test = (n / sum(numbers) for n in numbers)
    return train, valid[0] if valid else 0.0, test
