"""Parts of a text: the training text cut in two or joined with another, samples."""

from __future__ import annotations

import numpy as np

from metarnn.cells import check
from metarnn.tasks.language.corpus import Corpus, Split
from metarnn.tasks.language.tokens import Tokens
from metarnn.tasks.language.vocabulary import UNK

MOST = 100_000  # tokens of the second part that units are scored on while searching
NEAR = 0.02  # of the text: a document's end so near to the cut is where it is made


def parted(corpus: Corpus, share: float) -> tuple[Corpus, Corpus]:
    """Two corpora of one: the first trains on the beginning of the training text and has its end,
    of this share, as `valid` (no more of it than MOST tokens); the second trains on that end and
    has `valid` as before.

    >>> from metarnn.tasks.language import load
    >>> corpus = load("pydoc")
    >>> first, second = parted(corpus, 0.25)
    >>> lengths = [len(each["train"].tokens) for each in (first, second)]
    >>> sum(lengths) == len(corpus["train"].tokens)
    True
    """
    if not 0 < share < 1:
        check.refuse("share", share, "a number between 0 and 1")
    train = corpus["train"]
    total, bounds = len(train.tokens), train.tokens.bounds
    place = round((1 - share) * total)
    nearest = int(bounds[np.abs(bounds - place).argmin()])
    if 0 < nearest < total and abs(nearest - place) <= NEAR * total:
        place = nearest
    begin, end = stretch(train, 0, place), stretch(train, place, total)
    scored = stretch(train, place, min(place + MOST, total))

    def made(splits: dict[str, Split]) -> Corpus:
        return Corpus(corpus.name, corpus.vocabulary, splits, corpus.kept)

    return made({"train": begin, "valid": scored}), made({"train": end, "valid": corpus["valid"]})


def stretch(split: Split, start: int, stop: int) -> Split:
    """Tokens [start, stop) of a split, with the documents that they are of."""
    tokens = split.tokens
    first = int(np.searchsorted(tokens.bounds, start, "right")) - 1
    last = int(np.searchsorted(tokens.bounds, stop, "left"))
    bounds = np.clip(tokens.bounds[first : last + 1], start, stop) - start
    values = tokens.values[start:stop]
    unknown = int(np.count_nonzero(values == UNK)) if split.unknown else 0
    return Split(Tokens(values, bounds, tokens.mapped), split.names[first:last], unknown)


def pieces(split: Split, most: int, count: int) -> Split:
    """At most so many tokens of a split: `count` pieces from all over it, a document each.

    Few tokens in documents enough stay as they are.

    >>> from metarnn.tasks.language import load
    >>> part = pieces(load("pydoc")["valid"], 1000, 4)
    >>> part.tokens.bounds.tolist()
    [0, 250, 500, 750, 1000]
    """
    total = len(split.tokens)
    if total <= most and split.tokens.documents >= count:
        return split
    length = max(min(most, total) // count, 1)
    starts = [k * total // count for k in range(min(count, total))]
    values = np.concatenate([split.tokens.values[start : start + length] for start in starts])
    bounds = np.arange(len(starts) + 1) * length
    unknown = int(np.count_nonzero(values == UNK)) if split.unknown else 0
    return Split(Tokens(values, bounds), tuple(f"sample {k}" for k in range(len(starts))), unknown)


def joined(first: Tokens, second: Tokens) -> Tokens:
    """The documents of both, one after the other.

    >>> begin, end = Tokens(np.arange(4), np.array([0, 4])), Tokens(np.arange(3), np.array([0, 3]))
    >>> joined(begin, end).bounds.tolist()
    [0, 4, 7]
    """
    values = np.concatenate([first.values, second.values])
    return Tokens(values, np.concatenate([first.bounds, len(first) + second.bounds[1:]]))
