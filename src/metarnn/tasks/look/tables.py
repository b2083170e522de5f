"""Tables: what their columns are tells what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metarnn.tasks.classification.formats import GROUPS, LABELS, text_columns
from metarnn.tasks.forecasting.dates import COLUMNS
from metarnn.tasks.forecasting.dates import parse as dates
from metarnn.tasks.look.content import count, is_class, lines, repeats
from metarnn.tasks.look.finding import Finding
from metarnn.tasks.rows import checked_rows, is_number


def columns(path: Path, delimiter: str) -> list[Finding]:
    """A table: what its columns are tells what it is."""
    if delimiter == "\t":  # where quotes are parts of texts
        rows = [line.split("\t") for line in lines(path) if line.strip()]
    else:
        rows = checked_rows(path, "\n".join(lines(path)))
    if len(rows) < 2:
        raise ValueError(f"{path}: expected a table of two rows at least")
    names = [name.strip() for name in rows[0][: min(map(len, rows))]]
    if delimiter == "," and all(map(is_number, names)):
        raise ValueError(f"{path}: its first line is no header. Write names of the columns there")
    table = Table(path, names, [column[1:] for column in zip(*rows, strict=False)])
    about = f"{path}: {count(path):,} lines, {len(names)} columns"
    sequences = _sequences(table, about, delimiter)
    if sequences is not None and not table.counts:
        return [sequences]
    found = [sequences, _series(table, about, delimiter), _pairs(table, about, delimiter)]
    return [each for each in found if each is not None]


@dataclass(frozen=True)
class Table:
    path: Path
    names: list[str]
    columns: list[Sequence[str]]

    def named(self, names: Sequence[str]) -> int | None:
        lower = [name.lower() for name in self.names]
        return next((lower.index(name) for name in names if name in lower), None)

    def numeric(self, k: int) -> bool:
        return all(is_number(value) for value in self.columns[k])

    @property
    def counts(self) -> bool:
        """Whether what is called `target` or `y` could be classes as well as small counts."""
        label = self.named(LABELS)
        ours = label is not None and self.names[label].lower() in ("target", "y")
        return label is not None and ours and self.numeric(label) and self.date is not None

    @property
    def date(self) -> int | None:
        """The column of dates: by its name where they could be numbers as well."""
        for k, name in enumerate(self.names):
            likely = name.lower() in COLUMNS
            column = self.columns[k]
            if (likely or not is_number(column[0])) and dates(list(column[:20])) is not None:
                return k
        return None


def _sequences(table: Table, about: str, delimiter: str) -> Finding | None:
    label, group = table.named(LABELS), table.named(GROUPS)
    values = range(len(table.names))
    lower = [name.lower() for name in table.names]
    texts = text_columns(dict(zip(lower, table.columns, strict=True)))
    if texts is not None and lower.index(texts[0]) == table.date:  # Jan 1, 2020
        texts = None
    if texts is not None and texts[1] is not None and delimiter == ",":
        why = f"texts ({texts[0]}) with a label ({texts[1]}): a classifier of them"
        return Finding("classification", (about, why), str(table.path))
    if delimiter == "\t":
        if len(table.names) > 3 and all(map(is_number, table.names)):
            if not is_class([table.names[0], *table.columns[0]]):
                return None
            why = f"a label and {len(table.names) - 1} numbers a row, as UCR has them: a classifier"
            return Finding("classification", (about, why), str(table.path))
        if len(table.names) != 2 or table.numeric(1):
            return None
        both = [[name, *column] for name, column in zip(table.names, table.columns, strict=True)]
        if not repeats(both[0]) or repeats(both[1]):
            return None
        why = "a label, a tab and a text in each line: a classifier of texts"
        return Finding("classification", (about, why), str(table.path))
    if label is not None and not is_class(table.columns[label]):
        label = None  # "target" and "y" are what series are called, too
    if group is not None and label is not None:
        why = f"a step a row, sequences told apart by {table.names[group]}, with a label"
        return Finding("classification", (about, f"{why}: a classifier"), str(table.path))
    if table.date is not None or len(table.names) < 4:
        return None
    label = len(table.names) - 1 if label is None and group is None else label
    others = [k for k in values if k != label]
    if label is None or not is_class(table.columns[label]) or not all(map(table.numeric, others)):
        return None
    why = f"a sequence of {len(others)} numbers a row with a label ({table.names[label]})"
    return Finding("classification", (about, f"{why}: a classifier"), str(table.path))


def _series(table: Table, about: str, delimiter: str) -> Finding | None:
    date = table.date
    if delimiter != "," and date is None:
        return None
    words = [k for k in range(len(table.names)) if k != date and not table.numeric(k)]
    numbers = [k for k in range(len(table.names)) if k != date and table.numeric(k)]
    if not numbers:
        return None
    if date is None:
        rows = _sequences(table, about, delimiter)
        if rows is not None or words:
            return None
        why = f"columns of numbers, no date: {len(numbers)} series, a row a step: a forecaster"
        return Finding("forecasting", (about, why), str(table.path))
    settings: dict[str, Any] = {}
    several = _groups(table, date, words, numbers)
    if several is not None:
        settings["series"] = table.names[several]
    static = [k for k in words if k != several and _constant(table, several, k)]
    lost = [k for k in words if k != several and k not in static]
    if static:
        settings["static"] = tuple(table.names[k] for k in static)
    if lost or several is not None:
        settings["targets"] = tuple(table.names[k] for k in numbers if k != several)
    what = ", ".join(table.names[k] for k in numbers[:5] if k != several)
    told = f"dates ({table.names[date]}) and numbers ({what}"
    told += f"), series told apart by {table.names[several]}" if several is not None else ")"
    more = (f"left out, since it is no number: {table.names[k]}" for k in lost)
    why = f"{told}: a forecaster of what follows"
    return Finding("forecasting", (about, *more, why), str(table.path), settings)


def _groups(table: Table, date: int, words: list[int], numbers: list[int]) -> int | None:
    """The column that tells series apart, where a date comes more than once."""
    when = table.columns[date]
    if len(set(when)) == len(when):
        return None
    likely = [k for k in numbers if table.names[k].lower() in (*GROUPS, "store", "item", "sensor")]
    for k in (*words, *likely):
        if len(set(zip(table.columns[k], when, strict=True))) == len(when):
            return k
    raise ValueError(
        f"{table.path}: dates come more than once, and no column tells which series a row is of. "
        "Use `metarnn search forecasting --series COLUMN`, or keep one row a date"
    )


def _constant(table: Table, several: int | None, k: int) -> bool:
    """Whether a column says the same of all rows of a series."""
    if several is None:
        return False
    pairs = set(zip(table.columns[several], table.columns[k], strict=True))
    return len(pairs) == len(set(table.columns[several]))


def _pairs(table: Table, about: str, delimiter: str) -> Finding | None:
    if table.date is not None or len(table.names) < 2 or (table.numeric(0) and table.numeric(1)):
        return None
    if table.named(("text",)) is not None:
        return None
    if delimiter == ",":
        words = [k for k in range(len(table.names)) if not table.numeric(k)]
        words = [k for k in words if not repeats(table.columns[k])]
        if len(words) != 2:
            return None
        source, target = (table.names[k] for k in words)
        why = f"two columns of texts: from {source} to {target}"
        sides = {"source": source, "target": target}
        return Finding("translation", (about, why), str(table.path), sides)
    sides = [[name, *column] for name, column in zip(table.names, table.columns, strict=True)][:2]
    if any(map(repeats, sides)):
        return None
    why = "two texts in each line with a tab between them: from the first to the second"
    return Finding("translation", (about, why), str(table.path))
