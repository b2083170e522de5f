"""What is in a file: its lines, and what the values in them could be."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from metarnn.tasks.classification.formats import MISSING

LOOK = 1000  # lines that are looked at
FEW = 30  # classes at most, where only the number of different values tells that they are classes


def ending(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix == ".gz" else path.suffix.lower()


def _opened(path: Path) -> Iterator[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            for line in file:
                yield line.rstrip("\r\n")  # type: ignore[misc]
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text: it is not UTF-8") from None
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def lines(path: Path) -> list[str]:
    found = list(islice(_opened(path), LOOK))
    if not any(line.strip() for line in found):
        raise ValueError(f"{path} is empty")
    return found


def count(path: Path) -> int:
    return sum(1 for _ in _opened(path))


def is_text(path: Path) -> bool:
    with path.open("rb") as file:
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
        whole = all(float(value).is_integer() for value in different if value)
        return whole and len(different) <= FEW
    return len(different) <= 10 * FEW


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.strip().lower() in MISSING
    return True
