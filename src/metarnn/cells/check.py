"""Errors written for the person who reads them: the argument, its value, what was expected."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn


def refuse(argument: str, value: object, expected: str, advice: str = "") -> NoReturn:
    """Raise a ValueError that names the argument, its value, what was expected, what to do."""
    raise ValueError(f"{argument}={value!r}: expected {expected}. {advice}".rstrip())


def size(argument: str, value: object, least: int = 1, most: int | None = None) -> int:
    try:
        whole = operator.index(value)  # type: ignore[arg-type]  numpy's integers count too
    except TypeError:
        whole = least - 1
    if isinstance(value, bool) or whole < least:
        refuse(argument, value, f"a whole number, at least {least}")
    if most is not None and whole > most:
        refuse(argument, whole, f"a whole number, at most {most:,}")
    return whole


def number(argument: str, value: object) -> float:
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number that no float can hold
        pass
    refuse(argument, value, "a finite number")


def probability(argument: str, value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= 1  # false for NaN too
    ):
        refuse(argument, value, "a probability between 0 and 1")
    return float(value)


def one_of(argument: str, value: object, choices: Iterable[str]) -> str:
    choices = list(choices)
    if not isinstance(value, str) or value not in choices:
        near = get_close_matches(value, choices, 1) if isinstance(value, str) else []
        advice = f"Did you mean {near[0]!r}?" if near else ""
        refuse(argument, value, "one of " + ", ".join(map(repr, choices)), advice)
    return value
