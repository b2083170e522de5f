"""Counting models of language, the baselines every learned one must beat.

An n-gram is numbered by the pair (number of its first n-1 tokens, last token), so that tables of
any order are sorted arrays of int64, whatever the vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from metarnn.cells import check
from metarnn.tasks.language.tokens import Tokens
from metarnn.tasks.language.vocabulary import BOS

# Scored this many tokens at a time, so that memory does not grow with the split.
STRETCH = 1 << 20


@dataclass(frozen=True)
class Table:
    """What was counted of n-grams h w: `keys` (h·V + w) sorted, how often each, sums over h.

    The number of an n-gram is its place in `keys`; that of its context h is its place among the
    keys of the table below.
    """

    keys: np.ndarray
    counts: np.ndarray
    totals: np.ndarray  # of each h: Σ_w c(h w)
    kinds: np.ndarray  # of each h: how many w there are with c(h w) > 0
    size: int  # V

    def find(self, contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The numbers of n-grams, -1 for those that were never seen."""
        keys = contexts * self.size + tokens
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where((contexts >= 0) & (self.keys[at] == keys), at, -1)

    @cached_property
    def discount(self) -> float:
        """D = n_1 / (n_1 + 2 n_2), of those seen once and twice (Ney, Essen, Kneser 1994)."""
        once, twice = (np.count_nonzero(self.counts == n) for n in (1, 2))
        return once / (once + 2 * twice) if once else 0.5


class NGram:
    """What two kinds of smoothing share: the tables of orders 1 to n."""

    def __init__(self, tokens: Tokens, vocabulary_size: int, order: int = 5) -> None:
        self.order = check.size("order", order)
        self.size = check.size("vocabulary_size", vocabulary_size)
        text = _padded(tokens, 0, tokens.documents, order)
        self.tables: list[Table] = []
        numbers = np.zeros(len(text), np.int64)  # of the (n-1)-gram that ends at each place
        parts = []
        for _ in range(order):
            contexts = np.concatenate([[0], numbers[:-1]])
            keys, first, numbers, counts = np.unique(
                contexts * self.size + text,
                return_index=True,
                return_inverse=True,
                return_counts=True,
            )
            parts.append((keys, first, numbers, counts))
        for k, (keys, *_) in enumerate(parts):
            # n-grams that end on <bos> are only there to have a number as contexts.
            counts = np.where(keys % self.size != BOS, self._counts(parts, k), 0)
            contexts = keys // self.size
            below = len(parts[k - 1][0]) if k else 1
            totals = np.bincount(contexts, counts, below)
            kinds = np.bincount(contexts, counts > 0, below)
            self.tables.append(Table(keys, counts, totals, kinds, self.size))

    def _counts(self, parts: list[tuple[np.ndarray, ...]], k: int) -> np.ndarray:
        """How often each (k+1)-gram was seen."""
        return parts[k][3]

    def log_p(self, contexts: list[np.ndarray], tokens: np.ndarray) -> np.ndarray:
        """log p(token | context), contexts given as their numbers for orders 1 to n."""
        raise NotImplementedError

    def distribution(self, context: list[int]) -> np.ndarray:
        """p(w | context) of every token w, [V]; only the last n-1 tokens of the context count."""
        padded = np.array([BOS] * self.order + list(context), np.int64)
        numbers = self._numbers(padded)
        contexts = [np.full(self.size, n[-1]) for n in numbers]
        return np.exp(self.log_p(contexts, np.arange(self.size)))

    def nats(self, tokens: Tokens) -> float:
        """The exact loss on a split, -Σ log p, each document from its beginning."""
        return float(sum(-log_p.sum() for log_p in self._stretches(tokens)))

    def bits(self, tokens: Tokens) -> float:
        """The same in bits a token."""
        return self.nats(tokens) / len(tokens) / math.log(2)

    def _stretches(self, tokens: Tokens):
        first = 0
        while first < tokens.documents:
            after = np.searchsorted(tokens.bounds, tokens.bounds[first] + STRETCH)
            last = min(max(int(after), first + 1), tokens.documents)
            text = _padded(tokens, first, last, self.order)
            numbers = [np.concatenate([[-1], n[:-1]]) for n in self._numbers(text)]
            real = text != BOS
            yield self.log_p([n[real] for n in numbers], text[real])
            first = last

    def _numbers(self, text: np.ndarray) -> list[np.ndarray]:
        """Of the 0- to (n-1)-gram that ends at each place; -1 where it was never seen."""
        found = [np.zeros(len(text), np.int64)]
        for table in self.tables[:-1]:
            before = np.concatenate([[found[-1][0] if len(found) == 1 else -1], found[-1][:-1]])
            found.append(table.find(before, text))
        return found


class KneserNey(NGram):
    """Interpolated Kneser–Ney smoothing (Kneser & Ney 1995; Chen & Goodman 1999).

    p_n(w | h) = max(c(h w) - D, 0)/c(h) + D·N(h •)/c(h) · p_{n-1}(w | h'), h' = h without its first
    token; below the highest order c counts in how many different contexts a word was seen, and
    p_0 = 1/V.
    """

    def _counts(self, parts: list[tuple[np.ndarray, ...]], k: int) -> np.ndarray:
        if k == self.order - 1:
            return parts[k][3]
        first, numbers = parts[k + 1][1], parts[k][2]
        return np.bincount(numbers[first], minlength=len(parts[k][0]))

    def log_p(self, contexts: list[np.ndarray], tokens: np.ndarray) -> np.ndarray:
        p = np.full(len(tokens), 1 / self.size)
        for table, context in zip(self.tables, contexts, strict=True):
            at = table.find(context, tokens)
            count = np.where(at >= 0, table.counts[at], 0)
            total = np.where(context >= 0, table.totals[context], 0)
            kinds = np.where(context >= 0, table.kinds[context], 0)
            seen = total > 0
            divisor = np.where(seen, total, 1)
            discount = table.discount
            higher = np.maximum(count - discount, 0) / divisor
            p = np.where(seen, higher + discount * kinds / divisor * p, p)
        return np.log(p)


class Laplace(NGram):
    """p(w | h) = (c(h w) + a)/(c(h) + a·V): every n-gram is pretended to have been seen.

    Most n-grams never are, and most of the probability goes to them: unfit for language.
    """

    def __init__(
        self, tokens: Tokens, vocabulary_size: int, order: int = 5, added: float = 1.0
    ) -> None:
        if check.number("added", added) <= 0:
            check.refuse("added", added, "above 0")
        self.added = added
        super().__init__(tokens, vocabulary_size, order)

    def log_p(self, contexts: list[np.ndarray], tokens: np.ndarray) -> np.ndarray:
        table, context = self.tables[-1], contexts[-1]
        at = table.find(context, tokens)
        count = np.where(at >= 0, table.counts[at], 0)
        total = np.where(context >= 0, table.totals[context], 0)
        return np.log((count + self.added) / (total + self.added * self.size))


def _padded(tokens: Tokens, first: int, last: int, order: int) -> np.ndarray:
    """Documents one after the other, each after `order` - 1 times `<bos>` (at least one)."""
    pad = np.full(max(order - 1, 1), BOS, np.int64)
    parts = []
    for k in range(first, last):
        start, stop = int(tokens.bounds[k]), int(tokens.bounds[k + 1])
        parts += [pad, tokens.read(start, stop - start)]
    return np.concatenate(parts)
