"""Tasks that need no data: dates in many notations, numbers in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta

import numpy as np

Split = dict[str, list[tuple[str, str]]]
SIZES = {"train": 20_000, "valid": 500, "test": 2_000}
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)

MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
ROMAN = "I II III IV V VI VII VIII IX X XI XII"
NAMES = {language: names.split() for language, names in MONTHS.items()}

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    " fifteen sixteen seventeen eighteen nineteen"
)
_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety"
ONES, TENS = _ONES.split(), _TENS.split()


def dates(seed: int = 0) -> Split:
    """Dates of two centuries, each in one of many notations, to ISO 8601.

    No date of one split is in another: what is to be learned is the notation.
    """
    random = np.random.default_rng([seed, 10])
    days = random.permutation((LAST - FIRST).days + 1)
    return _split(random, days, lambda day: _date(FIRST + timedelta(days=int(day)), random))


def _date(day: date, random: np.random.Generator) -> tuple[str, str]:
    return NOTATIONS[random.integers(len(NOTATIONS))](day), day.isoformat()


def _english(day: date) -> str:
    return NAMES["en"][day.month - 1]


def ordinal(n: int) -> str:
    """
    >>> [ordinal(n) for n in (1, 2, 3, 4, 11, 22)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    ending = {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{'th' if n in (11, 12, 13) else ending}"


# Day before month wherever both are numbers and the year does not come first: nothing has two
# meanings.
NOTATIONS: tuple[Callable[[date], str], ...] = (
    lambda d: f"{d.day} {_english(d)} {d.year}",
    lambda d: f"{_english(d)} {d.day}, {d.year}",
    lambda d: f"{_english(d)} {ordinal(d.day)}, {d.year}",
    lambda d: f"the {ordinal(d.day)} of {_english(d)} {d.year}",
    lambda d: f"{DAYS.split()[d.weekday()]}, {d.day} {_english(d)} {d.year}",
    lambda d: f"{DAYS.split()[d.weekday()][:3]} {_english(d)[:3]} {d.day} {d.year}",
    lambda d: f"{d.day}-{_english(d)[:3]}-{d.year}",
    lambda d: f"{d.day:02} {_english(d)[:3].upper()} {d.year}",
    lambda d: f"{d.year} {_english(d)} {d.day}",
    lambda d: f"{_english(d).lower()} {d.day} {d.year}",
    lambda d: f"{d.day}.{d.month}.{d.year}",
    lambda d: f"{d.day:02}.{d.month:02}.{d.year}",
    lambda d: f"{d.day:02}/{d.month:02}/{d.year}",
    lambda d: f"{d.day}/{d.month}/{d.year}",
    lambda d: f"{d.year}/{d.month:02}/{d.day:02}",
    lambda d: f"{d.year}.{d.month}.{d.day}",
    lambda d: f"{d:%Y%m%d}",
    lambda d: f"{d.day}.{ROMAN.split()[d.month - 1]}.{d.year}",
    lambda d: f"{d.day}. {NAMES['de'][d.month - 1]} {d.year}",
    lambda d: f"den {d.day}. {NAMES['de'][d.month - 1]} {d.year}",
    lambda d: f"le {d.day if d.day > 1 else '1er'} {NAMES['fr'][d.month - 1]} {d.year}",
)


def numbers(seed: int = 0) -> Split:
    """Numbers below a billion in English words, with and without "and", to digits.

    All lengths are equally frequent, and no number of one split is in another.
    """
    random = np.random.default_rng([seed, 11])
    found: dict[int, None] = {}
    while len(found) < sum(SIZES.values()):
        digits = random.integers(1, 10)
        found[int(random.integers(10 ** (digits - 1) if digits > 1 else 0, 10**digits))] = None
    drawn = random.permutation(list(found))
    return _split(random, drawn, lambda n: (in_words(int(n), bool(random.integers(2))), str(n)))


def in_words(n: int, joined: bool = False) -> str:
    """
    >>> in_words(1_020_305), in_words(305, joined=True)
    ('one million twenty thousand three hundred five', 'three hundred and five')
    """
    return " ".join(_words(n, joined)) or "zero"


def _words(n: int, joined: bool) -> Iterator[str]:
    for size, name in ((10**6, "million"), (10**3, "thousand"), (100, "hundred")):
        if n >= size:
            yield f"{in_words(n // size, joined)} {name}"
            n %= size
            if joined and n and size == 100:
                yield "and"
    if n >= 20:
        yield TENS[n // 10] + (f"-{ONES[n % 10]}" if n % 10 else "")
    elif n:
        yield ONES[n]


def _split(
    random: np.random.Generator, drawn: np.ndarray, pair: Callable[[int], tuple[str, str]]
) -> Split:
    found, begin = {}, 0
    for split, size in SIZES.items():
        found[split] = [pair(each) for each in drawn[begin : begin + size]]
        begin += size
    return found


GENERATED = {"dates": dates, "numbers": numbers}
