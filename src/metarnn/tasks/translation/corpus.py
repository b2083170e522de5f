"""Pairs made ready: two vocabularies, and the numbers of every sentence's tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from metarnn.cells import check
from metarnn.tasks.language.vocabulary import LEVELS, UNK, Vocabulary
from metarnn.tasks.translation import pairs as files
from metarnn.tasks.translation.pairs import Pairs

Progress = Callable[[str, int, int], None]  # what is done, sentences so far, sentences in all


@dataclass(frozen=True)
class Split:
    """The sentences of one split, as text and as numbers, and what became of the others.

    unknown  tokens that the vocabularies do not have, of the source and of the target
    empty    pairs left out since one side has no text
    long     pairs left out since one side has too many tokens
    """

    pairs: Pairs
    source: list[np.ndarray]
    target: list[np.ndarray]
    unknown: tuple[int, int] = (0, 0)
    long: int = 0

    def __len__(self) -> int:
        return len(self.source)

    @property
    def empty(self) -> int:
        return self.pairs.empty

    def describe(self, name: str) -> str:
        """A line with all counts; those that are zero say nothing."""
        counts = {
            "pairs": len(self),
            "left out with an empty side": self.empty,
            "left out as too long": self.long,
            "unknown tokens in the source": self.unknown[0],
            "unknown tokens in the target": self.unknown[1],
        }
        shown = [f"{n:,} {what}" for what, n in counts.items() if n or what == "pairs"]
        return f"{name}: {', '.join(shown)}"


@dataclass(frozen=True)
class ParallelCorpus:
    """Vocabularies of source and target, one and the same where they are joint, and the splits."""

    name: str
    source: Vocabulary
    target: Vocabulary
    splits: dict[str, Split]
    lowercase: bool = False

    def __getitem__(self, split: str) -> Split:
        return self.splits[check.one_of("split", split, self.splits)]


def load(
    data: str = "dates",
    level: str = "character",
    *,
    source: str = "",
    target: str = "",
    split: str = "auto",
    joint: bool = False,
    lowercase: bool = False,
    min_frequency: int = 1,
    max_size: int | None = None,
    longest: int = 0,
    vocabularies: tuple[Vocabulary, Vocabulary] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> ParallelCorpus:
    """Read pairs, count vocabularies (on `train` alone) and number their tokens.

    >>> corpus = load("dates")
    >>> corpus["test"].pairs.source[0], corpus["test"].pairs.target[0]
    ('01/09/2079', '2079-09-01')

    data, source, target, split  see `pairs.read`
    level         "character", "byte", "word" (what stands between spaces) or "bpe"
    joint         one vocabulary for both sides
    lowercase     of all text
    max_size      tokens of a vocabulary at most
    longest       pairs with more tokens on a side are left out of train; 0 for no limit
    vocabularies  those of a trained model, instead of counting
    """
    check.one_of("level", level, LEVELS)
    check.size("longest", longest, least=0)
    found = files.read(data, source, target, split, seed)
    if lowercase:
        found = {name: _lower(pairs) for name, pairs in found.items()}
    if vocabularies is None:
        train = found[check.one_of("split", "train", found)]
        options = (level, min_frequency, max_size)
        if joint:
            one = Vocabulary.build(([line] for line in train.source + train.target), *options)
            vocabularies = one, one
        else:
            vocabularies = (
                Vocabulary.build(([line] for line in train.source), *options),
                Vocabulary.build(([line] for line in train.target), *options),
            )
    splits = {}
    for name, pairs in found.items():
        limit = longest if name == "train" else 0
        splits[name] = _number(name, pairs, vocabularies, limit, progress)
        if not len(splits[name]):
            raise ValueError(f"{data}: the split {splits[name].describe(name)}")
    return ParallelCorpus(data, *vocabularies, splits, lowercase)


def _lower(pairs: Pairs) -> Pairs:
    source, target = ([line.lower() for line in side] for side in (pairs.source, pairs.target))
    return Pairs(source, target, pairs.empty)


def _number(
    name: str,
    pairs: Pairs,
    vocabularies: tuple[Vocabulary, Vocabulary],
    longest: int,
    progress: Progress | None,
) -> Split:
    def encoded(lines: Sequence[str], vocabulary: Vocabulary, side: str) -> Iterator[np.ndarray]:
        for k, line in enumerate(lines):
            if progress is not None and k % 1000 == 0:
                progress(f"numbering {name}, {side}", k, len(lines))
            yield vocabulary.encode(line)

    source = list(encoded(pairs.source, vocabularies[0], "source"))
    target = list(encoded(pairs.target, vocabularies[1], "target"))
    long = 0
    if longest:
        kept = [
            k
            for k, (x, y) in enumerate(zip(source, target, strict=True))
            if max(len(x), len(y)) <= longest
        ]
        long = len(source) - len(kept)
        source, target = [source[k] for k in kept], [target[k] for k in kept]
        texts = [pairs.source[k] for k in kept], [pairs.target[k] for k in kept]
        pairs = Pairs(*texts, pairs.empty)
    return Split(pairs, source, target, (_unknown(source), _unknown(target)), long)


def _unknown(sentences: Iterable[np.ndarray]) -> int:
    return sum(int((numbers == UNK).sum()) for numbers in sentences)
