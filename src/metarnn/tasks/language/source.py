"""Where texts come from: files, folders, standard input, datasets, and what Python carries."""

from __future__ import annotations

import codecs
import io
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

PIECE = 1 << 20
EMBEDDED = ("pydoc", "stdlib")
SAYING = 20  # paragraphs up to this many characters say nothing: they may come again
SHORTEST = 200


@dataclass(frozen=True)
class Document:
    """A text that is read in pieces: `size` bytes from `start` of what `open` opens."""

    name: str
    open: Callable[[], BinaryIO]
    size: int
    start: int = 0

    def bytes(self) -> Iterator[bytes]:
        with self.open() as file:
            file.seek(self.start)
            left = self.size
            while left > 0:
                piece = file.read(min(PIECE, left))
                if not piece:
                    raise OSError(f"{self.name} became shorter while it was read")
                left -= len(piece)
                yield piece

    def text(self) -> Iterator[str]:
        """The same as text; a file that is none is refused with the place where that shows."""
        decoder, place = codecs.getincrementaldecoder("utf-8")(), self.start
        advice = "For a file of any kind: --level byte."
        for piece in self.bytes():
            pending = len(decoder.getstate()[0])
            try:
                text = decoder.decode(piece)
            except UnicodeDecodeError as error:
                at = place - pending + error.start
                byte = error.object[error.start]
                raise ValueError(
                    f"{self.name} is no text: byte 0x{byte:02x} at {at} is no UTF-8. {advice}"
                ) from None
            if "\0" in text:
                raise ValueError(f"{self.name} is no text: it has zero bytes. {advice}")
            place += len(piece)
            yield text
        if decoder.getstate()[0]:
            raise ValueError(f"{self.name} is no text: it ends within a character. {advice}")

    def of_lines(self, count: int) -> Iterator[Document]:
        """The same in documents of so many lines; the last may have fewer."""
        ends, seen, place = [0], 0, 0
        for piece in self.bytes():
            at = -1
            while (at := piece.find(b"\n", at + 1)) >= 0:
                seen += 1
                if seen % count == 0:
                    ends.append(place + at + 1)
            place += len(piece)
        ends += [place] if ends[-1] < place else []
        for k, (start, stop) in enumerate(pairwise(ends)):
            lines = f"{self.name}, from line {k * count + 1}"
            yield Document(lines, self.open, stop - start, self.start + start)

    def part(self, start: int, stop: int, name: str) -> Document:
        """Bytes `start` to `stop` of it, each moved on to the beginning of a character."""
        start, stop = self._boundary(start), self._boundary(stop)
        return Document(name, self.open, stop - start, self.start + start)

    def _boundary(self, at: int) -> int:
        if not 0 < at < self.size:
            return max(0, min(at, self.size))
        with self.open() as file:
            file.seek(self.start + at)
            follow = file.read(4)
        inside = next((k for k, byte in enumerate(follow) if byte & 0xC0 != 0x80), 0)
        return min(at + inside, self.size)


def from_text(name: str, text: str | bytes) -> Document:
    content = text.encode() if isinstance(text, str) else text
    return Document(name, partial(io.BytesIO, content), len(content))


def from_file(path: Path, name: str | None = None) -> Document:
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no plain file")
    try:
        size = path.stat().st_size
        with path.open("rb"):
            pass
    except OSError as error:
        raise type(error)(f"{path} cannot be read: {error.strerror}") from None
    return Document(name or str(path), partial(path.open, "rb"), size)


def embedded(name: str) -> list[Document]:
    """Texts that every Python carries: "pydoc", its help topics, or "stdlib", its source."""
    if name == "pydoc":
        from pydoc_data.topics import topics

        texts = without_repeats(dict(sorted(topics.items())))
        return [from_text(topic, text) for topic, text in texts.items()]
    base = Path(sysconfig.get_paths()["stdlib"])
    without = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
    without |= {"lib2to3", "pydoc_data"}
    found = []
    for path in sorted(base.rglob("*.py")):
        relative = path.relative_to(base)
        if not without & set(relative.parts) and path.stat().st_size:
            found.append(from_file(path, str(relative)))
    return found


def without_repeats(texts: Mapping[str, str]) -> dict[str, str]:
    """Texts in which every paragraph stands once, where it comes first.

    Python's topics quote one another by the page: without this a quarter of them is said twice, and
    most of a test text would have been seen in training.
    """
    seen: set[str] = set()
    found = {}
    for name, text in texts.items():
        kept = []
        for paragraph in text.split("\n\n"):
            words = " ".join(paragraph.split())
            if words not in seen:
                kept.append(paragraph)
            if len(words) > SAYING:
                seen.add(words)
        text = "\n\n".join(kept)
        if len(text) > SHORTEST:  # else little more than a heading is left
            found[name] = text
    return found


def find_files(data: str) -> tuple[Path, list[Path]]:
    """The files that a path or a pattern names, and the folder their names are relative to."""
    path = Path(data)
    if path.is_dir():
        if not (files := _matching(path, "**/*")):
            raise ValueError(f"{data} is an empty folder: expected files of text in it")
        return path, files
    if path.exists():
        return path.parent, [path]
    fixed = Path(data.split("*")[0].split("?")[0].split("[")[0])
    base = fixed if fixed.is_dir() else fixed.parent
    if not (files := _matching(base, str(path.relative_to(base)))):
        raise FileNotFoundError(
            f"{data}: no such file, folder or pattern of files. Embedded texts: "
            f"{', '.join(EMBEDDED)}; standard input: -; a Hugging Face dataset: hf:NAME."
        )
    return base, files


def _matching(base: Path, pattern: str) -> list[Path]:
    """Files that are not hidden; links to folders, which may be loops, are not followed."""
    try:
        found = list(base.glob(pattern))
    except ValueError:  # such as ** within a name
        return []
    return sorted(
        file
        for file in found
        if file.is_file() and not any(p.startswith(".") for p in file.relative_to(base).parts)
    )


def standard_input(to: Path) -> Document:
    """Standard input, kept in a file, since a text is read more than once."""
    with to.open("wb") as file:
        while piece := sys.stdin.buffer.read(PIECE):
            file.write(piece)
    return from_file(to, "standard input")


def hugging_face(name: str, folder: Path) -> dict[str, Document]:
    """The splits of a dataset `NAME` or `NAME:CONFIGURATION`, a row of its text a line or more."""
    try:
        from datasets import load_dataset  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"hf:{name} needs the package datasets: pip install 'metarnn[datasets]'"
        ) from None
    name, _, configuration = name.partition(":")
    found = {}
    for k, (split, rows) in enumerate(load_dataset(name, configuration or None).items()):
        text = [column for column, kind in rows.features.items() if kind.dtype == "string"]
        if not text:
            raise ValueError(f"hf:{name} has no column of text, only {', '.join(rows.features)}")
        column = "text" if "text" in text else text[0]
        to = folder / f"{k}.txt"  # a name in a dataset is never one on the disk
        with to.open("w", encoding="utf-8") as file:
            for row in rows:
                line = row[column] or ""
                file.write(line if line.endswith("\n") else line + "\n")
        found[str(split)] = from_file(to, f"hf:{name}/{split}")
    return found


def total(documents: Sequence[Document]) -> int:
    return sum(document.size for document in documents)
