"""Which documents are for training, for validation and for the test."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from metarnn.cells import check
from metarnn.tasks.language.source import (
    EMBEDDED,
    Document,
    embedded,
    find_files,
    from_file,
    hugging_face,
    standard_input,
    total,
)

logger = logging.getLogger(__name__)

SPLITS = ("train", "valid", "test")
_WORDS = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
}

# What "auto" gives valid and test at most, in bytes: a million characters tell the loss to a
# fraction of a percent, and are read in seconds, whatever the size of the text.
EVALUATED = 1 << 20

Splits = dict[str, list[Document]]


def find(data: str, split: str, seed: int, folder: Path) -> Splits:
    """The documents of each split; `folder` takes what must be kept in a file to be read twice.

    Names tell (`ptb.char.train.txt`, a folder `train/`, the splits of a dataset), else documents
    are dealt out by the hash of their names, else (few of them) each is cut into stretches. With
    `all` everything is one split of that name.
    """
    shares = Shares.parse(split)
    parted = "all" not in shares.shares
    if data in EMBEDDED:
        return deal(embedded(data), shares, seed)
    if data == "-":
        return cut([_filled(standard_input(folder / "input.txt"))], shares)
    if data.startswith("hf:"):
        named = hugging_face(data[3:], folder)
        found = {_WORDS[s]: [_filled(d)] for s, d in named.items() if s in _WORDS and d.size}
        if parted and len(found) > 1:
            return _with_valid(found, seed)
        return cut([_filled(document) for document in named.values()], shares)
    base, files = find_files(data)
    together = _siblings(files[0]) if len(files) == 1 else files
    named = by_name(together, base) if parted else {}
    if named:
        found = {
            split: [_filled(from_file(path, _name(path, base))) for path in paths]
            for split, paths in named.items()
        }
        return _with_valid(found, seed)
    documents = [from_file(path, _name(path, base)) for path in files]
    if len(documents) == 1:
        return cut([_filled(documents[0])], shares)
    full = [document for document in documents if document.size]
    if not full:
        raise ValueError(f"{data}: all {len(documents)} files are empty")
    return deal(full, shares, seed)


@dataclass(frozen=True)
class Shares:
    """How a text is split: the share of each split, and how many bytes all but train get at most.

    >>> Shares.parse("90/10").of(1000)
    {'train': 900, 'valid': 100}
    """

    shares: Mapping[str, float]
    most: int | None = None

    @classmethod
    def parse(cls, text: str) -> Shares:
        """Of `90/5/5`, `90/10` (without a test), `auto`, or `all`."""
        if text == "all":
            return cls({"all": 1.0})
        if text == "auto":
            return cls(cls.parse("90/5/5").shares, EVALUATED)
        try:
            numbers = [float(part) for part in text.split("/")]
        except ValueError:
            numbers = []
        if len(numbers) not in (2, 3) or not all(0 < n < 1e6 for n in numbers):
            expected = "auto, or shares of train, valid and test as in 90/5/5 or 90/10"
            check.refuse("split", text, expected)
        return cls({split: n / sum(numbers) for split, n in zip(SPLITS, numbers, strict=False)})

    def of(self, whole: int) -> dict[str, int]:
        """The bytes of each split of a text of `whole` bytes."""
        ends, share = [0], 0.0
        for part in self.shares.values():
            share += part
            ends.append(int(share * whole + 1e-6))
        ends[-1] = whole
        sizes = {s: b - a for s, a, b in zip(self.shares, ends, ends[1:], strict=False)}
        if self.most is not None:
            sizes = {s: n if s == "train" else min(n, self.most) for s, n in sizes.items()}
            sizes["train"] += whole - sum(sizes.values())
        return sizes


def by_name(files: Sequence[Path], base: Path) -> dict[str, list[Path]]:
    """Files by the split that their names tell; {} unless all tell, and train is not alone."""
    found: dict[str, dict[str, list[Path]]] = {}
    for path in files:
        split, family = _split_of(path, base)
        if split is None:
            return {}
        found.setdefault(split, {}).setdefault(family, []).append(path)
    if "train" not in found or len(found) == 1:
        return {}
    families = {family for split in found.values() for family in split}
    files_of_train = [family for family in found["train"] if not family.startswith("/")]
    if len(files_of_train) > 1 and len(families) > 1:
        first = found["train"][files_of_train[0]][0]
        raise ValueError(
            f"{base} holds {len(families)} texts with splits of their own "
            f"({', '.join(sorted(families))}): name one by its training file, {first}"
        )
    return {
        split: [path for paths in found[split].values() for path in paths]
        for split in SPLITS
        if split in found
    }


def _split_of(path: Path, base: Path) -> tuple[str | None, str]:
    """The split that a path names, and its name without that; folders count for all below."""
    relative = path.relative_to(base)
    for part in relative.parts[:-1]:
        if part.lower() in _WORDS:
            return _WORDS[part.lower()], "/"
    pieces = re.split(r"([._-])", path.name)
    for k, piece in enumerate(pieces):
        if piece.lower() in _WORDS:
            return _WORDS[piece.lower()], "".join([*pieces[:k], "*", *pieces[k + 1 :]])
    return None, path.name


def _siblings(path: Path) -> list[Path]:
    """A training file with the files beside it that are called the same but for the split."""
    split, family = _split_of(path, path.parent)
    if split != "train":
        return [path]
    beside = [p for p in sorted(path.parent.iterdir()) if p.is_file()]
    return [p for p in beside if _split_of(p, path.parent)[1] == family]


def deal(documents: Sequence[Document], shares: Shares, seed: int) -> Splits:
    """Whole documents, in an order that only names and the seed decide, to splits they fit in."""
    room = shares.of(total(documents))
    dealt: Splits = {split: [] for split in room}
    for document in sorted(documents, key=lambda d: _hash(d.name, seed)):
        fits = [split for split in room if split != "train" and document.size <= room[split]]
        split = fits[-1] if fits else "train"
        dealt[split].append(document)
        room[split] -= document.size
    if not all(dealt.values()):
        if len(documents) > 1:
            logger.warning("%d documents are too few to deal out: each is cut", len(documents))
        return cut(documents, shares)
    return {split: sorted(dealt[split], key=lambda d: d.name) for split in dealt}


def cut(documents: Sequence[Document], shares: Shares) -> Splits:
    """The beginning of every document for training, its end for the test."""
    found: Splits = {split: [] for split in shares.shares}
    for document in documents:
        start = 0
        for split, size in shares.of(document.size).items():
            piece = document.part(start, start + size, f"{document.name} ({split})")
            if piece.size:
                found[split].append(piece)
            start += size
    for split, pieces in found.items():
        if not pieces:
            names = ", ".join(document.name for document in documents[:3])
            raise ValueError(
                f"{names}: {total(documents)} bytes of text are too few to split into "
                f"{', '.join(found)}: nothing is left for {split}"
            )
    return found


def _with_valid(found: Splits, seed: int) -> Splits:
    """The same; where there is only a test beside train, valid is taken from train."""
    if "valid" in found:
        return {split: found[split] for split in SPLITS if split in found}
    taken = deal(found["train"], Shares({"train": 0.95, "valid": 0.05}, EVALUATED), seed)
    return {**taken, "test": found["test"]}


def _hash(name: str, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogateescape")).digest()


def _name(path: Path, base: Path) -> str:
    try:
        return str(path.relative_to(base))
    except ValueError:
        return str(path)


def _filled(document: Document) -> Document:
    if not document.size:
        raise ValueError(f"{document.name} is empty: expected a text")
    return document
