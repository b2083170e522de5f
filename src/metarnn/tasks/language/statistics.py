"""What a person wants to know about a text before a model reads it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from metarnn.tasks.language.vocabulary import COUNTED

# English function words, which lead every count and say little about what a text is about.
_STOP_WORDS = """
a about after all also an and any are as at be because been but by can could did do does for from
had has have he her his how i if in into is it its may more most no not of on one only or other
our out over she should so some such than that the their them then there these they this to up was
we were what when where which who will with would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
SHOWN = 10


@dataclass(frozen=True)
class Grams:
    """The n-grams of words in a text.

    total     how many there are
    distinct  how many different ones
    once      how many were seen a single time
    top       the most frequent, (words, count)
    curve     counts by rank, most frequent first
    slope     of the straight line through log(count) over log(rank): about -1 by Zipf's law
    """

    n: int
    total: int
    distinct: int
    once: int
    top: tuple[tuple[str, int], ...]
    curve: np.ndarray
    slope: float


@dataclass(frozen=True)
class Description:
    """What `describe` found."""

    documents: int
    characters: int
    lines: int
    alphabet: int
    words: int
    stop_words: tuple[tuple[str, int], ...]
    stop_share: float
    grams: tuple[Grams, ...]


def describe(documents: Iterable[Iterable[str]], orders: int = 3) -> Description:
    """Count the words of documents that come in pieces of text; words are lower-cased.

    >>> found = describe([["to be or not to be"]])
    >>> found.words, found.grams[0].distinct, found.grams[1].top[0]
    (6, 4, ('to be', 2))
    """
    counts: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(orders)]
    totals = [0] * orders
    letters: Counter[str] = Counter()
    number = characters = 0
    for pieces in documents:
        number += 1
        last: list[str] = []
        for text in whole_words(pieces):
            letters.update(text)
            characters += len(text)
            words = WORD.findall(text.lower())
            joined = last + words
            for n in range(1, orders + 1):
                fresh = joined[max(len(last) - n + 1, 0) :]
                grams = list(zip(*(fresh[k:] for k in range(n)), strict=False))
                counts[n - 1].update(grams)
                totals[n - 1] += len(grams)
            last = joined[-(orders - 1) :] if orders > 1 else []
            for n, counter in enumerate(counts):
                if len(counter) > 4 * COUNTED:  # memory stays bounded; the rarest are forgotten
                    counts[n] = Counter({gram: c for gram, c in counter.items() if c > 1})
    found = [(word, c) for (word,), c in counts[0].items() if word in STOP_WORDS]
    stops = sorted(found, key=lambda pair: (-pair[1], pair[0]))
    return Description(
        documents=number,
        characters=characters,
        lines=letters["\n"],
        alphabet=len(letters),
        words=totals[0],
        stop_words=tuple(stops[:SHOWN]),
        stop_share=sum(c for _, c in stops) / max(totals[0], 1),
        grams=tuple(_grams(n + 1, counter, totals[n]) for n, counter in enumerate(counts)),
    )


def _grams(n: int, counter: Counter[tuple[str, ...]], total: int) -> Grams:
    top = sorted(counter.items(), key=lambda pair: (-pair[1], pair[0]))[:SHOWN]
    curve = np.sort(np.fromiter(counter.values(), np.int64, len(counter)))[::-1]
    return Grams(
        n,
        total,
        len(counter),
        int(np.count_nonzero(curve == 1)),
        tuple((" ".join(gram), c) for gram, c in top),
        curve,
        zipf_slope(curve),
    )


def zipf_slope(curve: np.ndarray) -> float:
    """The slope of log(count) over log(rank), by least squares.

    Ranks are taken evenly on the logarithmic axis, since nearly all of them lie at its far end;
    the long last step of things seen once is left out, where ranks are ties and mean nothing.
    """
    curve = curve[: int(np.count_nonzero(curve > 1))]
    if len(curve) < 3:
        return math.nan
    ranks = log_ranks(len(curve))
    slope, _ = np.polyfit(np.log(ranks), np.log(curve[ranks - 1]), 1)
    return float(slope)


def log_ranks(count: int, points: int = 200) -> np.ndarray:
    """Ranks 1 … count, evenly on a logarithmic axis, each once."""
    return np.unique(np.rint(np.geomspace(1, count, points)).astype(np.int64))


def whole_words(pieces: Iterable[str]) -> Iterable[str]:
    """The same text in pieces that end after a white space, so that no word is cut."""
    rest = ""
    for piece in pieces:
        text = rest + piece
        cut = max(text.rfind(" "), text.rfind("\n")) + 1
        yield text[:cut]
        rest = text[cut:]
    yield rest
