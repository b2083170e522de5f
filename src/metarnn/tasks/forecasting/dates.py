"""Dates in a column of text: what they are, how far apart, what is missing between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Steps that people name, with the season that usually goes with them, in steps.
NAMED = {
    1: ("second", 60),
    60: ("minute", 60),
    900: ("15 minutes", 96),
    1800: ("30 minutes", 48),
    3600: ("hour", 24),
    86400: ("day", 7),
    604800: ("week", 52),
}
MONTHS = {1: ("month", 12), 3: ("quarter", 4), 12: ("year", 1)}
# Beyond these, differences of dates would not fit into 64 bits of seconds.
EARLIEST, LATEST = np.datetime64("-9999-01-01", "s"), np.datetime64("9999-12-31", "s")
DAY_FIRST = re.compile(r"(\d{1,2})[./](\d{1,2})[./](\d{4})(.*)")


@dataclass(frozen=True)
class Frequency:
    """How far apart two steps are: a number of seconds, or of months."""

    seconds: int = 0
    months: int = 0

    @property
    def name(self) -> str:
        if self.months:
            return MONTHS.get(self.months, (f"{self.months} months", 1))[0]
        return NAMED.get(self.seconds, (f"{self.seconds} s" if self.seconds else "step", 1))[0]

    @property
    def season(self) -> int:
        """Steps of the season that usually goes with it; 1 for none."""
        if self.months:
            return MONTHS.get(self.months, ("", 1))[1]
        return NAMED.get(self.seconds, ("", 1))[1]

    def after(self, last: np.datetime64, steps: int) -> np.ndarray:
        """The next dates."""
        ahead = np.arange(1, steps + 1)
        if not self.months:
            return last + ahead * np.timedelta64(self.seconds or 1, "s")
        month = last.astype("datetime64[M]")
        within = last - month.astype("datetime64[s]")
        return (month + ahead * self.months).astype("datetime64[s]") + within


def parse(texts: Sequence[str]) -> np.ndarray | None:
    """Dates as seconds; None where a text is none. Also years, and 31.12.2020 or 31/12/2020."""
    found = []
    for text in texts:
        text = text.strip()
        if match := DAY_FIRST.fullmatch(text):
            day, month, year, rest = match.groups()
            text = f"{year}-{int(month):02}-{int(day):02}{rest}"
        text = text.replace("/", "-").replace(" ", "T", 1).removesuffix("Z")
        try:
            found.append(np.datetime64(text, "s"))
        except (ValueError, OverflowError):
            return None
        if np.isnat(found[-1]) or not EARLIEST <= found[-1] <= LATEST:
            return None
    return np.array(found, "datetime64[s]")


def frequency(dates: np.ndarray) -> Frequency:
    """The step that occurs most often."""
    if len(dates) < 2:
        return Frequency(1)
    seconds = np.diff(dates).astype(np.int64)
    months = np.diff(dates.astype("datetime64[M]")).astype(np.int64)
    values, counts = np.unique(months, return_counts=True)
    common = int(values[counts.argmax()])
    within = dates - dates.astype("datetime64[M]").astype("datetime64[s]")
    if common >= 1 and len(np.unique(within)) == 1:
        return Frequency(months=common)
    values, counts = np.unique(seconds, return_counts=True)
    return Frequency(seconds=int(values[counts.argmax()]))


def places(dates: np.ndarray, step: Frequency) -> np.ndarray:
    """The number of steps from the first date to each; a ValueError where one lies between."""
    if step.months:
        months = dates.astype("datetime64[M]").astype(np.int64)
        apart, whole = months - months[0], step.months
    else:
        apart, whole = (dates - dates[0]).astype(np.int64), step.seconds
    if (wrong := np.flatnonzero(apart % whole)).size:
        k = int(wrong[0])
        raise ValueError(f"{dates[k]} is no whole number of steps ({step.name}) after {dates[0]}")
    if (wrong := np.flatnonzero(np.diff(apart) <= 0)).size:
        k = int(wrong[0])
        raise ValueError(f"{dates[k + 1]} does not come after {dates[k]}: sort the rows by date")
    return apart // whole
