"""Simple rules of translation: copy the source, or look up the nearest training source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from metarnn.tasks.rules import Rule, RuleSet, fingerprint
from metarnn.tasks.task import Measure
from metarnn.tasks.translation import metrics
from metarnn.tasks.translation.corpus import ParallelCorpus

REMEMBERED = 20_000  # training pairs of a translation memory
GRAM = 3  # characters


class TranslationMemory:
    """The target of the training source that shares most trigrams of characters, by the cosine of
    their counts weighted by log(N / n), n the number of sources with a trigram.

    >>> memory = TranslationMemory(["good day", "good night"], ["guten Tag", "gute Nacht"])
    >>> memory("a good night")
    'gute Nacht'
    """

    def __init__(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        self.targets = targets
        postings: dict[str, list[tuple[int, int]]] = {}
        for k, source in enumerate(sources):
            for gram, count in _grams(source).items():
                postings.setdefault(gram, []).append((k, count))
        self.postings: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        squares = np.zeros(len(sources))
        for gram, pairs in postings.items():
            rows = np.array(pairs)
            idf = np.log(1 + len(sources) / len(rows))
            weights = rows[:, 1] * idf
            squares[rows[:, 0]] += weights**2
            self.postings[gram] = rows[:, 0], weights * idf
        self.norms = np.sqrt(np.maximum(squares, 1e-12))

    def __call__(self, source: str) -> str:
        scores = np.zeros(len(self.targets))
        for gram, count in _grams(source).items():
            if gram in self.postings:
                rows, weights = self.postings[gram]
                scores[rows] += count * weights
        return self.targets[int((scores / self.norms).argmax())]


def _grams(text: str) -> Counter[str]:
    padded = f" {text.lower()} "
    return Counter(padded[k : k + GRAM] for k in range(len(padded) - GRAM + 1))


def rule_set(corpus: ParallelCorpus, split: str, select: str) -> RuleSet:
    """Copying, and a translation memory of the training pairs."""
    measure = Measure("exact" if select == "exact" else "bleu", large=True)
    pairs = corpus[split].pairs
    train = corpus["train"].pairs if "train" in corpus.splits else None
    sources = list(train.source[:REMEMBERED]) if train else []
    targets = list(train.target[:REMEMBERED]) if train else []
    letters = sum(map(len, pairs.target))
    longest = max(map(len, pairs.target), default=1)
    scoring = 2e-7 * letters * longest + 3e-5 * letters

    def scored(texts: Sequence[str]) -> dict[str, float]:
        labels = pairs.target
        return {
            "bleu": metrics.text_bleu(texts, labels, corpus.lowercase),
            "exact": metrics.exact_match(texts, labels),
            "edits": metrics.error_rate(texts, labels),
            "sentences": len(pairs.source),
        }

    def remembered() -> dict[str, float]:
        memory = TranslationMemory(sources, targets)
        return scored([memory(source) for source in pairs.source])

    copied = Rule("copying the source", scoring, lambda: scored(pairs.source))
    rules = [copied]
    if sources:
        asked = sum(map(len, pairs.source))
        took = scoring + 5e-6 * sum(map(len, sources)) + asked * (1e-5 + 1e-9 * len(sources))
        cut = train is not None and len(train.source) > len(sources)
        note = f"of the first {len(sources):,} training pairs" if cut else ""
        rules.append(Rule("translation memory", took, remembered, note))
    texts = (*sources, "", *targets, "", *pairs.source, "", *pairs.target)
    return RuleSet(fingerprint((corpus.lowercase, *texts)), measure, tuple(rules))
