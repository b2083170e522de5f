"""Pairs of sentences: where they come from, and what was wrong with them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from metarnn.cells import check
from metarnn.graph import files
from metarnn.tasks.language.split import SPLITS, Shares
from metarnn.tasks.packed import gunzip
from metarnn.tasks.rows import table_rows
from metarnn.tasks.translation.generated import GENERATED

TABLES = (".tsv", ".csv", ".jsonl")
_SPLIT = re.compile(r"(?:^|[._-])(train|valid|val|dev|test)", re.IGNORECASE)
_NAMES = {"train": "train", "valid": "valid", "val": "valid", "dev": "valid", "test": "test"}


@dataclass(frozen=True)
class Pairs:
    """Sentences, each beside its translation; `empty` pairs with nothing on a side were left out.

    >>> Pairs.of([("eins", "one"), ("", "two")])
    Pairs(source=['eins'], target=['one'], empty=1)
    """

    source: list[str] = field(default_factory=list)
    target: list[str] = field(default_factory=list)
    empty: int = 0

    def __len__(self) -> int:
        return len(self.source)

    @staticmethod
    def of(pairs: Iterable[tuple[str, str]]) -> Pairs:
        stripped = [(x.strip(), y.strip()) for x, y in pairs]
        full = [(x, y) for x, y in stripped if x and y]
        return Pairs([x for x, _ in full], [y for _, y in full], len(stripped) - len(full))


def read(
    data: str, source: str = "", target: str = "", split: str = "auto", seed: int = 0
) -> dict[str, Pairs]:
    """The pairs of each split.

    data            "dates" or "numbers", which are generated; a folder with files of `train`,
                    `valid` (or `val`, `dev`) and `test` in their names; one set of pairs, which is
                    split: a table (.tsv or .txt with tabs, .csv, .jsonl), or the beginning of the
                    names of two aligned files
    source, target  what names of aligned files end with, as in `train.de` (or `train.de.gz`); the
                    keys of JSON lines, by default "source" and "target"; the columns of a .csv, by
                    default the first two; not needed with tabs
    split           shares of train, valid and test where names do not tell, or "all", which is
                    one split of that name with all there is
    """
    if data in GENERATED:
        found = {name: Pairs.of(pairs) for name, pairs in GENERATED[data](seed).items()}
        return _all(found) if split == "all" else found
    path = Path(data)
    if path.is_dir():
        found = _folder(path, source, target)
        return _all(found) if split == "all" else found
    if path.is_file():
        pairs = _table(path, source, target)
    elif source and target and _side(path, source):
        pairs = _aligned(path, source, target)
    else:
        names = ", ".join(GENERATED)
        aligned = f", nor files {data}.{source} and {data}.{target}" if source and target else ""
        raise FileNotFoundError(
            f"{data}: no such file or folder{aligned}. Aligned files are named by --data PREFIX "
            f"--source de --target en; generated: {names}"
        )
    if split == "all":
        return {"all": pairs}
    return deal(pairs, Shares.parse(split).shares, seed, data)


def deal(pairs: Pairs, shares: Mapping[str, float], seed: int, name: str) -> dict[str, Pairs]:
    """Pairs to splits by a hash of the source: a sentence that comes twice is never in two."""
    found: dict[str, tuple[list[str], list[str]]] = {split: ([], []) for split in shares}
    ends = dict(zip(shares, accumulate(shares.values()), strict=True))
    ends[list(shares)[-1]] = 1.0
    for x, y in zip(pairs.source, pairs.target, strict=True):
        digest = hashlib.blake2b(f"{seed}\0{x.lower()}".encode(errors="replace"), digest_size=8)
        place = int.from_bytes(digest.digest()) / 2**64
        sources, targets = found[next(split for split, end in ends.items() if place < end)]
        sources.append(x)
        targets.append(y)
    for split, (sources, _) in found.items():
        if not sources:
            raise ValueError(f"{name}: {len(pairs)} pairs are too few, none is left for {split}")
    parts = {split: Pairs(*sides) for split, sides in found.items()}
    return parts | {"train": Pairs(*found["train"], pairs.empty)}


def _all(found: Mapping[str, Pairs]) -> dict[str, Pairs]:
    source = [x for pairs in found.values() for x in pairs.source]
    target = [y for pairs in found.values() for y in pairs.target]
    return {"all": Pairs(source, target, sum(pairs.empty for pairs in found.values()))}


def _folder(folder: Path, source: str, target: str) -> dict[str, Pairs]:
    """What is in a folder, by names."""
    parts: dict[str, list[tuple[str, Callable[[], Pairs]]]] = {}
    for path in sorted(folder.iterdir()):
        plain = path.with_suffix("") if path.suffix == ".gz" else path
        found = _SPLIT.search(plain.name)
        if not found or not path.is_file():
            continue
        load: Callable[[], Pairs] | None = None
        if plain.suffix in TABLES:
            load = _later(_table, path, source, target)
        elif source and plain.name.endswith(f".{source}"):
            load = _later(_aligned, plain.with_name(plain.name[: -len(source) - 1]), source, target)
        if load is not None:
            parts.setdefault(_NAMES[found[1].lower()], []).append((path.name, load))
    if "train" not in parts:
        ending = f".{source}" if source else ".tsv or .jsonl, or --source and --target"
        raise ValueError(f"{folder} has no pairs to train on: expected names like train{ending}")
    for split, named in parts.items():
        if split != "train" and len(named) > 1:
            names = ", ".join(name for name, _ in named)
            raise ValueError(f"{folder} has several files for {split}: {names}. Leave one there")
    found = {split: _joined(load() for _, load in named) for split, named in parts.items()}
    if "valid" not in found:
        dealt = deal(found["train"], {"train": 0.95, "valid": 0.05}, 0, str(folder))
        found |= {"train": dealt["train"], "valid": dealt["valid"]}
    return {split: found[split] for split in SPLITS if split in found}


def _later(read: Callable[..., Pairs], *arguments: object) -> Callable[[], Pairs]:
    return lambda: read(*arguments)


def _joined(parts: Iterable[Pairs]) -> Pairs:
    return _all(dict(enumerate(parts)))["all"]  # type: ignore[arg-type]


def _side(prefix: Path, language: str) -> Path | None:
    """The file of one side, as it is or packed."""
    names = (f"{prefix.name}.{language}", f"{prefix.name}.{language}.gz")
    return next((p for name in names if (p := prefix.with_name(name)).is_file()), None)


def _aligned(prefix: Path, source: str, target: str) -> Pairs:
    """Two files; line k of one is the translation of line k of the other."""
    paths = {language: _side(prefix, language) for language in (source, target)}
    for language, path in paths.items():
        if not language or path is None:
            check.refuse("target", language, f"the ending of a file {prefix}.…, beside .{source}")
    sides = [lines(path) for path in paths.values() if path is not None]
    if len(sides[0]) != len(sides[1]):
        first, second = paths.values()
        raise ValueError(
            f"{first} has {len(sides[0]):,} lines and {second} {len(sides[1]):,}: expected as "
            "many, line k of one being the translation of line k of the other"
        )
    return Pairs.of(zip(*sides, strict=True))


def _table(path: Path, source: str, target: str) -> Pairs:
    """One file with both sides in each line."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    if plain.suffix not in (kinds := (*TABLES, ".txt")):
        check.refuse("data", str(path), f"a file that ends in {', '.join(kinds)}, or a folder")
    if plain.suffix == ".csv":
        return Pairs.of(_named("\n".join(lines(path)), str(path), source, target))
    kind = _fields if plain.suffix == ".jsonl" else _columns
    names = (source or "source", target or "target")
    return Pairs.of(
        kind(line, f"{path}, line {number}", *names) if line.strip() else ("", "")
        for number, line in enumerate(lines(path), 1)
    )


def _columns(line: str, where: str, source: str, target: str) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) < 2:
        raise ValueError(f"{where}: expected a source and a target with a tab between them")
    return columns[0], columns[1]


def _named(table: str, where: str, source: str, target: str) -> Iterable[tuple[str, str]]:
    """Two columns of a table with a header."""
    names, *rows = table_rows(table)
    names = [name.strip() for name in names]
    if len(names) < 2:
        raise ValueError(f"{where}: expected two columns, with a header")
    x, y = (names.index(check.one_of("column", n, names)) if n else k
            for k, n in enumerate((source, target)))  # fmt: skip
    for row in rows:
        yield (row[x], row[y]) if len(row) > max(x, y) else ("", "")


def _fields(line: str, where: str, source: str, target: str) -> tuple[str, str]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    if isinstance(found, dict) and isinstance(found.get("translation"), dict):
        found = found["translation"]  # as datasets of translations have it
    sides = [found.get(name) if isinstance(found, dict) else None for name in (source, target)]
    if not all(isinstance(side, str) for side in sides):
        raise ValueError(f"{where}: expected an object with texts {source!r} and {target!r}")
    return sides[0], sides[1]  # pyright: ignore[reportReturnType]


def lines(path: Path) -> list[str]:
    """The lines of a text, which may be packed by gzip."""
    content = gunzip(path) if path.suffix == ".gz" else files.content(path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: this is no UTF-8") from None
    if not text:
        raise ValueError(f"{path} is empty: expected a sentence a line")
    found = text.removeprefix("\ufeff").split("\n")
    return [line.removesuffix("\r") for line in (found[:-1] if not found[-1] else found)]
