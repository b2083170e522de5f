"""Dataclasses from what a file says: each value is of the type that its field declares."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from metarnn.cells import check
from metarnn.tasks.limits import check_limits

T = TypeVar("T")
WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def typed(kind: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass with these values, lists as tuples; a ValueError names what does not fit.

    >>> from metarnn.training import Settings
    >>> typed(Settings, {"lr": 1, "betas": [0.5, 0.9]}).betas
    (0.5, 0.9)
    """
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType]
    for name in values:
        check.one_of("key", name, names)
    options = kind(**{name: checked(name, value, hints[name]) for name, value in values.items()})
    check_limits(options)
    return options


def checked(name: str, value: Any, hint: Any) -> Any:
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
        return tuple(checked(name, v, k) for v, k in zip(value, kinds, strict=True))
    if hint is float and type(value) is int and abs(value) < 2**1023:
        return float(value)
    if type(value) is not hint:
        check.refuse(name, value, WORDS.get(hint, str(hint)))
    return value
