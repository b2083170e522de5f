"""Settings as TOML, and back: a frozen dataclass, one key a field."""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from metarnn.cells import check
from metarnn.graph.files import text, write

T = TypeVar("T")
LARGEST_TOML = 2**20  # bytes


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
    """Write the settings of a run, first what its task is."""
    write(path, f"task = {_value(task)}\n" + to_toml(settings, without))


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The keys of a TOML file; a ValueError names the file where it is not one."""
    try:
        found = text(path, LARGEST_TOML)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {os.fspath(path)}") from None
    try:
        return tomllib.loads(found)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of too many digits
        raise ValueError(f"{os.fspath(path)} is not TOML: {error}") from None


def from_keys(kind: type[T], keys: Mapping[str, Any], source: str) -> T:
    """A dataclass with these values, each checked; a ValueError names the source, key and value."""
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    values = {}
    for key, value in keys.items():
        name = key.replace("-", "_")
        try:
            check.one_of("key", name, names)
            values[name] = _checked(name, value, hints[name])
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None
    try:
        return kind(**values)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{source}: {error}") from None


def _checked(name: str, value: Any, hint: Any) -> Any:
    """The value as a field of this type has it."""
    if get_origin(hint) is Literal:
        return check.one_of(name, value, get_args(hint))
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            check.refuse(name, value, "a list")
        kinds = get_args(hint)
        kinds = kinds[:1] * len(value) if kinds[-1] is Ellipsis else kinds
        if len(kinds) != len(value):
            check.refuse(name, value, f"a list of {len(kinds)}")
        return tuple(_checked(name, v, k) for v, k in zip(value, kinds, strict=True))
    if hint is float and type(value) is int and abs(value) < 2**1023:
        return float(value)
    if type(value) is not hint:
        words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        check.refuse(name, value, words.get(hint, str(hint)))
    return value


def _value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bool | int | str):
        # A string of JSON is one of TOML too, but for the one control character it leaves as is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise TypeError(f"TOML has nothing for {value!r}")
