"""A text made ready: its vocabulary, and the numbers of its tokens for each split."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metarnn.cells import check
from metarnn.engines.cpu.compile import cache_folder
from metarnn.graph import files
from metarnn.tasks.language import split as splits
from metarnn.tasks.language.source import Document, total
from metarnn.tasks.language.tokens import Tokens, Writer
from metarnn.tasks.language.vocabulary import LEVELS, UNK, Vocabulary

# Below this many bytes of text tokens stay in memory and nothing is kept on disk.
IN_MEMORY = 1 << 26
LARGEST_WORD_VOCABULARY = 1 << 16
FORMAT = 1
LOCK = ".lock"  # held while a folder is being filled
JUST_BEGUN = 60.0  # seconds in which a folder may have no lock yet, or no longer
LARGEST_NAMES = 1 << 30  # bytes of a file with the names of all documents

Progress = Callable[[str, int, int], None]  # what is done, bytes so far, bytes in all


@dataclass(frozen=True)
class Split:
    """One split: its tokens, the names of its documents, and how many tokens are unknown."""

    tokens: Tokens
    names: tuple[str, ...]
    unknown: int


@dataclass(frozen=True)
class Corpus:
    """A vocabulary and the splits of a text, `train` and `valid` and most often `test`."""

    name: str
    vocabulary: Vocabulary
    splits: dict[str, Split]
    kept: list[object] = field(default_factory=list, repr=False)  # alive as long as we are

    def __getitem__(self, split: str) -> Split:
        return self.splits[check.one_of("split", split, self.splits)]

    @property
    def level(self) -> str:
        return self.vocabulary.level


def load(
    data: str = "pydoc",
    level: str = "character",
    *,
    split: str = "auto",
    lines: int = 0,
    min_frequency: int = 1,
    max_size: int | None = None,
    vocabulary: Vocabulary | None = None,
    seed: int = 0,
    cache: str | os.PathLike[str] | None = None,
    in_memory: int = IN_MEMORY,
    progress: Progress | None = None,
) -> Corpus:
    """Read a text, split it, count its vocabulary (on `train` alone) and number its tokens.

    >>> corpus = load("pydoc")
    >>> sorted(corpus.splits), corpus["train"].tokens.documents > 40
    (['test', 'train', 'valid'], True)

    data        a file, a folder, a pattern of files, "-" for standard input, "hf:NAME" for a
                dataset, or "pydoc" or "stdlib", which every Python carries
    level       "character", "byte", "word" or "bpe"
    split       shares of train, valid and test, where names of files do not tell, as in "90/5/5" or
                "90/10"; "auto" is 90/5/5 with at most 1 MiB for valid and for test; "all" is one
                split of that name with everything in it, which needs a vocabulary
    lines       so many of them make a document; 0 where a file is one
    vocabulary  one to use instead of counting: that of a trained model
    cache       where large texts are kept once numbered; by default the user's cache folder
    """
    check.one_of("level", level, LEVELS)
    if vocabulary is None and level == "word" and max_size is None:
        max_size = LARGEST_WORD_VOCABULARY
    work = tempfile.TemporaryDirectory(prefix="metarnn-")
    found = splits.find(data, split, seed, Path(work.name))
    if check.size("lines", lines, least=0):
        found = {
            name: [part for each in documents for part in each.of_lines(lines)]
            for name, documents in found.items()
        }
    size = total([document for documents in found.values() for document in documents])
    options = (level, min_frequency, max_size, vocabulary)
    kept: list[object] = [work]
    if size <= in_memory:
        counted, read = number(found, *options, None, progress)
        return _checked(Corpus(data, counted, read, kept))
    base = Path(cache) if cache is not None else cache_folder()
    if base is None:
        base = Path(work.name)
    folder = base / "corpora" / _key(found, *options, progress)
    try:
        if not (folder / "corpus.json").exists():
            _build(folder, found, *options, progress)
        return _checked(_open(folder, data, kept))
    except OSError as error:
        raise OSError(
            f"{folder}: {error.strerror or error}. The numbered text takes up to "
            f"{2 * size >> 20} MiB there; METARNN_CACHE=FOLDER names another place."
        ) from error


def _checked(corpus: Corpus) -> Corpus:
    for name, split in corpus.splits.items():
        if not len(split.tokens):
            raise ValueError(f"{corpus.name}: the split {name} has no {corpus.level} in it")
    if "train" in corpus.splits and len(corpus["train"].tokens) < 2:
        raise ValueError(
            f"{corpus.name}: one {corpus.level} is too little to learn from: expected a text"
        )
    return corpus


def _pieces(document: Document, level: str) -> Iterator[str] | Iterator[bytes]:
    return document.bytes() if level == "byte" else document.text()


def number(
    found: splits.Splits,
    level: str,
    min_frequency: int = 1,
    max_size: int | None = None,
    vocabulary: Vocabulary | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> tuple[Vocabulary, dict[str, Split]]:
    """Count a vocabulary where none is given, and number the tokens of every split with it."""
    if vocabulary is None:
        check.one_of("split", "train", found)
        pieces = counted_pieces(found["train"], level, "counting", progress)
        vocabulary = Vocabulary.build(pieces, level, min_frequency, max_size)
    read = {}
    for name, documents in found.items():
        report = _Report(f"numbering {name}", total(documents), progress)
        writer = Writer(vocabulary.dtype, None if folder is None else folder / f"{name}.bin")
        names = []
        for document in documents:
            pieces = report.over(document, _pieces(document, vocabulary.level))
            if writer.add(vocabulary.stream(pieces), UNK):
                names.append(document.name)
        read[name] = Split(writer.close(), tuple(names), writer.unknown)
    return vocabulary, read


def counted_pieces(
    documents: Sequence[Document], level: str, what: str, progress: Progress | None
) -> Iterator[Iterator[Any]]:
    """The documents in pieces, each piece told to whoever shows progress."""
    report = _Report(what, total(documents), progress)
    return (report.over(document, _pieces(document, level)) for document in documents)


class _Report:
    def __init__(self, what: str, whole: int, progress: Progress | None) -> None:
        self.what, self.whole, self.progress = what, whole, progress
        self.done = 0

    def over(self, document: Document, pieces: Iterator[Any]) -> Iterator[Any]:
        before = self.done
        for piece in pieces:
            yield piece
            self.done = min(self.done + len(piece), before + document.size)
            if self.progress is not None:
                self.progress(self.what, self.done, self.whole)
        self.done = before + document.size


def _key(
    found: splits.Splits,
    level: str,
    min_frequency: int,
    max_size: int | None,
    vocabulary: Vocabulary | None,
    progress: Progress | None,
) -> str:
    """A name for the result that changes with anything it depends on, contents included."""
    settings: list[Any] = [FORMAT, level, min_frequency, max_size]
    settings.append(None if vocabulary is None else vocabulary.document())
    key = hashlib.sha256(json.dumps(settings).encode())
    for name, documents in found.items():
        report = _Report(f"looking at {name}", total(documents), progress)
        for document in documents:
            key.update(f"{name}\0{document.name}\0{document.size}\0".encode(errors="replace"))
            for piece in report.over(document, document.bytes()):
                key.update(piece)
    return key.hexdigest()[:32]


def _build(
    folder: Path,
    found: splits.Splits,
    level: str,
    min_frequency: int,
    max_size: int | None,
    vocabulary: Vocabulary | None,
    progress: Progress | None,
) -> None:
    """Make the folder beside its place and rename it: it is whole or not there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    beside = Path(tempfile.mkdtemp(prefix=".build-", dir=folder.parent))
    lock = (beside / LOCK).open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        options = (level, min_frequency, max_size, vocabulary)
        counted, read = number(found, *options, beside, progress)
        counted.save(beside / "vocabulary.json")
        about = {}
        for name, split in read.items():
            (beside / f"{name}.names.json").write_text(json.dumps(split.names), encoding="utf-8")
            about[name] = {"unknown": split.unknown, "documents": split.tokens.documents}
        (beside / "corpus.json").write_text(json.dumps(about), encoding="utf-8")
        (beside / LOCK).unlink()
        for path in (*beside.iterdir(), beside):
            files.sync(path)
        try:
            os.rename(beside, folder)
        except OSError:
            if not (folder / "corpus.json").exists():  # else another process was faster
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        lock.close()


def _sweep(folder: Path) -> None:
    """Remove what processes left behind that were killed: whoever is at work holds a lock."""
    for left in folder.glob(".build-*"):
        with suppress(OSError):
            if not (left / LOCK).exists():
                if time.time() - left.stat().st_mtime > JUST_BEGUN:
                    shutil.rmtree(left, ignore_errors=True)
                continue
            with (left / LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)


def _open(folder: Path, name: str, kept: list[object]) -> Corpus:
    try:
        vocabulary = Vocabulary.load(folder / "vocabulary.json")
        about = files.document(folder / "corpus.json")
        found = {}
        for split, facts in about.items():
            check.one_of("split", split, (*splits.SPLITS, "all"))
            tokens = Tokens.open(folder / f"{split}.bin", vocabulary.dtype)
            names = tuple(map(str, files.document(folder / f"{split}.names.json", LARGEST_NAMES)))
            found[split] = Split(tokens, names, int(facts["unknown"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{folder} is damaged: delete it, it will be made again ({error})"
        ) from None
    return Corpus(name, vocabulary, found, kept)
