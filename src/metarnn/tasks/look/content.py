"""What is in a file: its lines, and what the values in them could be."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from io import IncrementalNewlineDecoder
from pathlib import Path

from metarnn.graph.files import plain
from metarnn.tasks.packed import pieces
from metarnn.tasks.rows import MISSING, is_number

LOOK, LONGEST = 1000, 1 << 24  # lines that are looked at, and characters of them
FEW = 30  # classes at most, where only the number of different values tells that they are classes


def ending(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix == ".gz" else path.suffix.lower()


def _text(path: Path) -> Iterator[str]:
    """All of a text a piece at a time, with "\\n" for every end of a line."""
    decoder = IncrementalNewlineDecoder(getincrementaldecoder("utf-8-sig")(), translate=True)
    try:
        for piece in pieces(path):
            yield decoder.decode(piece)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text: it is not UTF-8") from None


def lines(path: Path) -> list[str]:
    """The first lines; of a text that is one endless line, its beginning."""
    found, whole = "", True
    for piece in _text(path):
        found += piece
        if found.count("\n") >= LOOK or len(found) >= LONGEST:
            whole = False
            break
    *before, last = found.split("\n")
    before += [last] if last and (whole or not before) else []
    if not any(line.strip() for line in before):
        raise ValueError(f"{path} is empty")
    return before[:LOOK]


def count(path: Path) -> int:
    ends, last = 0, "\n"
    for piece in _text(path):
        ends += piece.count("\n")
        last = piece[-1:] or last
    return ends + (last != "\n")


def is_text(path: Path) -> bool:
    with plain(path) as file:
        piece = file.read(1 << 16)
    for cut in range(4):  # the last character may be cut in two
        try:
            return "\0" not in piece[: len(piece) - cut].decode("utf-8")
        except UnicodeDecodeError:
            continue
    return False


def repeats(values: Sequence[str]) -> bool:
    """Whether these are labels rather than texts: few, short, and each comes often."""
    different = set(values)
    short = max(map(len, different)) <= 40
    return short and len(different) <= max(len(values) // 4, 2) and len(different) <= 10 * FEW


def is_class(values: Sequence[str]) -> bool:
    """Whether a column names classes: words that repeat, or few whole numbers."""
    different = {value.strip() for value in values}
    if not 1 < len(different) <= max(len(values) // 2, 2):
        return False
    if all(is_number(value) for value in different):
        known = [value for value in different if value.lower() not in MISSING]
        return all(float(value).is_integer() for value in known) and len(different) <= FEW
    return len(different) <= 10 * FEW
