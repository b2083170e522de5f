"""The rows of tables in text: what parts their fields, and numbers as people write them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from metarnn.tasks.packed import table_content

MISSING = ("", "?", "nan", "na", "null", "none")
DELIMITERS = ";\t|,"  # a comma last: it stands in numbers and in sentences as well
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet computes a cell that begins so
LOOK = 50  # rows that tell what parts fields
COMMA = re.compile(r"[-+]?(\d{1,3}(\.\d{3})+|\d+),\d+")  # 1.234,5
DOT = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")  # 1,234.5
PLAIN = re.compile(r"[-+]?[\d.]*|[A-Za-z?]*")


def csv_rows(path: Path, delimiter: str = "") -> list[list[str]]:
    """The rows of a table that are not empty; a ValueError names a file that is none."""
    try:
        table = table_content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"{error.reason} at byte {error.start}"
        raise ValueError(f"{path} is no text in UTF-8: {why}") from None
    return checked_rows(path, table, delimiter)


def checked_rows(path: Path, table: str, delimiter: str = "") -> list[list[str]]:
    """The rows of a table, all as long as its header; a ValueError names the first line that is
    not."""
    part = delimiter or find_delimiter(table)
    reader = csv.reader(io.StringIO(table, newline=""), delimiter=part)
    try:
        width = 0
        for row in reader:
            width = width or len(row)
            if row and len(row) != width:
                text = f"{len(row)} fields, but the header has {width}"
                raise ValueError(f"{path}, line {reader.line_num}: {text}{_other(row, part)}")
        return table_rows(table, part)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from None


def _other(row: list[str], part: str) -> str:
    """What else may part the fields of a row that is not as long as others."""
    counts = {other: part.join(row).count(other) for other in DELIMITERS if other != part}
    other = max(counts, key=lambda each: counts[each])
    if len(row) > 1 or not counts[other]:
        return ""
    return f". It has {other!r} between fields, and lines before have {part!r}: use one of them"


def table_rows(table: str, delimiter: str = "") -> list[list[str]]:
    """Rows of fields. What parts them is told from the first rows, where it is not given.

    >>> table_rows("day;sold\\n1.2.2020;1.250,5")
    [['day', 'sold'], ['1.2.2020', '1250.5']]
    """
    part = delimiter or find_delimiter(table)
    return _plain(list(_parted(table, part)), DOT if part == "," else COMMA)


def find_delimiter(table: str) -> str:
    """What parts each of the first rows into as many fields; a comma where nothing does."""
    for part in DELIMITERS:
        with suppress(csv.Error):
            widths = {len(row) for row in islice(_parted(table, part), LOOK)}
            if len(widths) == 1 and widths != {1}:
                return part
    return ","


def _parted(table: str, delimiter: str) -> Iterator[list[str]]:
    return (row for row in csv.reader(io.StringIO(table, newline=""), delimiter=delimiter) if row)


def _plain(rows: list[list[str]], written: re.Pattern[str]) -> list[list[str]]:
    """The rows with the numbers of columns that are written so as 1234.5."""
    if not rows or not any("," in field for row in rows[1:] for field in row):
        return rows
    for k in range(len(rows[0])):
        column = [row[k].strip() if k < len(row) else "" for row in rows[1:]]
        if not any(map(written.fullmatch, column)):
            continue
        if not all(written.fullmatch(field) or PLAIN.fullmatch(field) for field in column):
            continue
        for row, field in zip(rows[1:], column, strict=True):
            if k < len(row):
                row[k] = _point(field) if written is COMMA else field.replace(",", "")
    return rows


def _point(field: str) -> str:
    return field.replace(".", "").replace(",", ".")


def without_formula(cell: str) -> str:
    """A cell that no spreadsheet computes: a text that it would has an apostrophe before it.

    >>> without_formula("=1+1"), without_formula("-1.5")
    ("'=1+1", '-1.5')
    """
    return f"'{cell}" if cell.startswith(FORMULA) and not is_number(cell) else cell


def csv_line(cells: Sequence[str]) -> str:
    """Cells as a line of CSV, none of which a spreadsheet computes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(map(without_formula, cells))
    return line.getvalue()


def is_number(field: str) -> bool:
    """Whether a field holds a number, or says that it is missing."""
    try:
        float(field)
    except ValueError:
        return field.strip().lower() in MISSING
    return True
