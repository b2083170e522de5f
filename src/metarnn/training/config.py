"""Settings as TOML, and back: a frozen dataclass, one key a field."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from metarnn.graph.files import text, write
from metarnn.graph.sealed import KEY, DamagedError, seal, verify
from metarnn.tasks.typed import typed

T = TypeVar("T")
LARGEST_TOML = 2**20  # bytes
STRINGS = re.compile(r"""'[^'\n]*'|"(?:[^"\\\n]|\\.)*\"""")
MOST_DOTS = 30  # of a key: tomllib takes time and memory by their square


def to_toml(settings: Any, without: Collection[str] = ()) -> str:
    """The fields of a dataclass as TOML.

    >>> from metarnn.training import Settings
    >>> print(to_toml(Settings(lr=0.1)))
    steps = 0
    ...
    lr = 0.1
    betas = [0.9, 0.999]
    ...
    """
    names = [f.name for f in dataclasses.fields(settings) if f.name not in without]
    return "".join(f"{name} = {_value(getattr(settings, name))}\n" for name in names)


def save(path: Path, task: str, settings: Any, without: Collection[str] = ()) -> None:
    """Write the settings of a run, first their checksum and what its task is."""
    toml = f"task = {_value(task)}\n" + to_toml(settings, without)
    write(path, f'{KEY} = "{seal(tomllib.loads(toml))[KEY]}"\n{toml}')


def read(path: str | os.PathLike[str], *, edited: bool = False) -> dict[str, Any]:
    """The keys of a TOML file; a ValueError names the file where it is not one.

    Args:
        edited: whether a file that no longer fits its checksum is read, as one that a user hands
            over
    """
    try:
        found = text(path, LARGEST_TOML)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {os.fspath(path)}") from None
    if "." * MOST_DOTS in re.sub(r"[\w\s-]+", "", STRINGS.sub("", found)):
        raise ValueError(f"{os.fspath(path)}: expected keys with less than {MOST_DOTS} dots")
    try:
        keys = tomllib.loads(found)
        return {key: keys[key] for key in keys if key != KEY} if edited else verify(keys)
    except DamagedError as error:
        raise DamagedError(f"{os.fspath(path)} {error}") from None
    except (ValueError, RecursionError) as error:  # ValueError: also a number of too many digits
        raise ValueError(f"{os.fspath(path)} is not TOML: {error}") from None


def from_keys(kind: type[T], keys: Mapping[str, Any], source: str) -> T:
    """A dataclass with these values, each checked; a ValueError names the source, key and value."""
    if not isinstance(keys, Mapping):
        raise ValueError(f"{source}: expected settings by name, not {keys!r}")
    try:
        return typed(kind, {key.replace("-", "_"): value for key, value in keys.items()})
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{source}: {error}") from None


def _value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bool | int | str):
        # A string of JSON is one of TOML too, but for the one control character it leaves as is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise TypeError(f"TOML has nothing for {value!r}")
