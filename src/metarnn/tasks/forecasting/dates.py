"""Dates in a column of text: what they are, how far apart, what is missing between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
NUMBERS = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})(?:[ T,]+(.*))?")
WORDS = re.compile(r"(?:(\d{1,2})[ .-]+)?([A-Za-z]{3,9})\.?[ ,-]+(?:(\d{1,2}),? +)?(\d{4}|\d{2})")
JOINED = re.compile(r"(\d{4})(\d{2})(\d{2})?")
QUARTER = re.compile(r"(\d{4})[ -]?[Qq]([1-4])")
CLOCK = re.compile(r"(\d{1,2}):(\d{2})(:\d{2}(?:\.\d*)?)?(?: *([AaPp])\.?[Mm]\.?)?")
ZONE = re.compile(r"(.*:\d\d(?:\.\d*)?) ?([+-]\d\d):?(\d\d)")
COLUMNS = ("date", "time", "timestamp", "datetime", "ds", "month", "year")  # what they are called
NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


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
        next_day = last + np.timedelta64(1, "D")
        if next_day.astype("datetime64[M]") > month:  # the end of a month, and so are the next
            starts = (month + 1 + ahead * self.months).astype("datetime64[s]")
            return starts - ((month + 1).astype("datetime64[s]") - last)
        within = last - month.astype("datetime64[s]")
        return (month + ahead * self.months).astype("datetime64[s]") + within


def parse(texts: Sequence[str]) -> np.ndarray | None:
    """Dates as seconds; None where a text is none.

    2020-12-31 with or without a time and a zone, 2020-12, 2020, 2020Q4, 20201231, 31 Dec 2020,
    Dec 2020, 31.12.2020, 31/12/2020 or 12/31/2020: whichever can be and, where both can, that with
    the steadier step. Zones count from that of the first.
    """
    texts = [text.strip().removesuffix("Z") for text in texts]
    zones = [ZONE.fullmatch(text) for text in texts]
    if not any(zones):
        return _read(texts)
    if not all(zones):
        return None
    found = _read([zone[1] for zone in zones if zone])
    minutes = [60 * int(z[2]) + int(z[2][0] + z[3]) for z in zones if z]
    ahead = np.array([m - minutes[0] for m in minutes], "timedelta64[m]")
    return None if found is None else found - ahead


def _read(texts: Sequence[str]) -> np.ndarray | None:
    if not texts or not NUMBERS.fullmatch(texts[0]):
        return _moments(map(_iso, texts))
    parts = [NUMBERS.fullmatch(text) for text in texts]
    if not all(parts):
        return None
    readings = []
    for day, month in ((1, 3), (3, 1)):
        dates = (_date(p[4], p[month], p[day], p[5] or "") for p in parts if p)
        if (read := _moments(dates)) is not None:
            readings.append(read)
    return min(readings, key=lambda dates: len(np.unique(_steps(dates))), default=None)


def _steps(dates: np.ndarray) -> np.ndarray:
    months = np.diff(dates.astype("datetime64[M]")).astype(np.int64)
    return np.diff(dates).astype(np.int64) if _within_months(dates) is None else months


def _moments(texts: Iterable[str]) -> np.ndarray | None:
    found = []
    for text in texts:
        try:
            found.append(np.datetime64(text, "s"))
        except (ValueError, OverflowError):
            return None
        if np.isnat(found[-1]) or not EARLIEST <= found[-1] <= LATEST:
            return None
    return np.array(found, "datetime64[s]")


def _iso(text: str) -> str:
    """As numpy reads it."""
    if match := WORDS.fullmatch(text):
        day, name, later, year = match.groups()
        name = name.lower()[:3]
        return _date(year, str(NAMES.index(name) + 1), day or later or "1") if name in NAMES else ""
    if match := QUARTER.fullmatch(text):
        return _date(match[1], str(3 * int(match[2]) - 2), "1")
    if match := JOINED.fullmatch(text):
        year, month, day = match.groups()
        return _date(year, month, day or "1")
    date, *time = text.replace("/", "-").replace("T", " ", 1).split(" ", 1)
    return date + _clock(time[0].strip()) if time else date


def _date(year: str, month: str, day: str, time: str = "") -> str:
    if len(year) == 2:
        year = ("20" if int(year) < 70 else "19") + year
    return f"{year}-{int(month):02}-{int(day):02}{_clock(time)}"


def _clock(time: str) -> str:
    if not (match := CLOCK.fullmatch(time)):
        return f"T{time}" if time else ""
    hour, minute, second, half = match.groups()
    if half:
        hour = int(hour) % 12 + 12 * (half.lower() == "p")
    return f"T{int(hour):02}:{minute}{second or ''}"


def frequency(dates: np.ndarray) -> Frequency:
    """The step that occurs most often."""
    if len(dates) < 2:
        return Frequency(1)
    seconds = np.diff(dates).astype(np.int64)
    months = np.diff(dates.astype("datetime64[M]")).astype(np.int64)
    values, counts = np.unique(months, return_counts=True)
    common = int(values[counts.argmax()])
    if common >= 1 and _within_months(dates) is not None:
        return Frequency(months=common)
    values, counts = np.unique(seconds, return_counts=True)
    return Frequency(seconds=int(values[counts.argmax()]))


def _within_months(dates: np.ndarray) -> np.timedelta64 | None:
    """How far into their months all dates are, from the start or, below 0, from the end."""
    for day in (np.timedelta64(0, "D"), np.timedelta64(1, "D")):
        moved = dates + day
        within = np.unique(moved - moved.astype("datetime64[M]").astype("datetime64[s]"))
        if len(within) == 1:
            return within[0] - day
    return None


def places(dates: np.ndarray, step: Frequency) -> np.ndarray:
    """The number of steps from the first date to each; a ValueError where one lies between."""
    if step.months:
        months = dates.astype("datetime64[M]").astype(np.int64)
        apart, whole = months - months[0], step.months
    else:
        apart, whole = (dates - dates[0]).astype(np.int64), step.seconds
    if (wrong := np.flatnonzero(np.diff(apart) <= 0)).size:
        k = int(wrong[0])
        raise ValueError(f"{dates[k + 1]} comes more than once: keep one row a date")
    if (wrong := np.flatnonzero(apart % whole)).size:
        k = int(wrong[0])
        raise ValueError(f"{dates[k]} is no whole number of steps ({step.name}) after {dates[0]}")
    return apart // whole
