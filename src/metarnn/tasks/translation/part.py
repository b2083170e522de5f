"""The training pairs cut in two, or joined with those for validation."""

from __future__ import annotations

from dataclasses import replace

from metarnn.cells import check
from metarnn.tasks.translation.corpus import ParallelCorpus, Split
from metarnn.tasks.translation.pairs import Pairs, deal


def parted(corpus: ParallelCorpus, share: float) -> tuple[ParallelCorpus, ParallelCorpus]:
    """Two corpora of one: the first trains on some of the training pairs and has the others, of
    this share, as `valid`; the second trains on those and has `valid` as before.

    >>> from metarnn.tasks.translation import load
    >>> corpus = load("dates")
    >>> first, second = parted(corpus, 0.25)
    >>> len(first["train"]) + len(second["train"]) == len(corpus["train"])
    True

    A source that comes twice is never in both.
    """
    if not 0 < share < 1:
        check.refuse("share", share, "a number between 0 and 1")
    train = corpus["train"]
    places = Pairs(train.pairs.source, [str(k) for k in range(len(train))])
    dealt = deal(places, {"train": 1 - share, "valid": share}, 1, corpus.name)
    begin, end = (some(train, [int(k) for k in part.target]) for part in dealt.values())

    def made(splits: dict[str, Split]) -> ParallelCorpus:
        return replace(corpus, splits=splits)

    return made({"train": begin, "valid": end}), made({"train": end, "valid": corpus["valid"]})


def some(split: Split, numbers: list[int]) -> Split:
    """The pairs with these numbers."""
    texts = Pairs(
        [split.pairs.source[k] for k in numbers], [split.pairs.target[k] for k in numbers]
    )
    return Split(texts, [split.source[k] for k in numbers], [split.target[k] for k in numbers])


def joined(first: Split, second: Split) -> Split:
    """The pairs of both."""
    texts = Pairs(
        first.pairs.source + second.pairs.source, first.pairs.target + second.pairs.target
    )
    return Split(texts, [*first.source, *second.source], [*first.target, *second.target])
