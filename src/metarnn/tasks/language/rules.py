"""Simple rules of language models: n-grams of the same tokens."""

from __future__ import annotations

import math

from metarnn.tasks.language.corpus import Corpus
from metarnn.tasks.language.evaluation import BITS
from metarnn.tasks.language.ngram import KneserNey
from metarnn.tasks.language.part import stretch
from metarnn.tasks.rules import Rule, RuleSet, fingerprint
from metarnn.tasks.task import Measure

ORDERS = (2, 5)
TOKEN_SECONDS = 0.7e-6  # to count or to score a token, for each order; one core of a laptop


def rule_set(corpus: Corpus, split: str, seconds: float) -> RuleSet:
    """Kneser–Ney n-grams of the training text, of as much of it as there is time for."""
    size, unit = len(corpus.vocabulary), corpus.vocabulary.unit
    measure = Measure(BITS.get(unit, "nll"))
    if "train" not in corpus.splits:
        return RuleSet("", measure, ())
    train, test = corpus["train"], corpus[split].tokens
    affordable = int(seconds / 2 / TOKEN_SECONDS / sum(ORDERS)) - len(test)
    count = min(len(train.tokens), max(affordable, len(test), 1))
    known = stretch(train, 0, count).tokens
    note = "" if count == len(train.tokens) else (
        f"counted in the first {count:,} of {len(train.tokens):,} training tokens"
    )  # fmt: skip

    def rule(order: int) -> Rule:
        def score() -> dict[str, float]:
            nll = KneserNey(known, size, order).nats(test) / len(test)
            bits = {measure.name: nll / math.log(2)} if unit in BITS else {}
            return {"nll": nll, "perplexity": math.exp(nll), **bits, "tokens": len(test)}

        took = TOKEN_SECONDS * order * (count + len(test))
        return Rule(f"{order}-gram model (Kneser–Ney)", took, score, note)

    tokens = (train.tokens.values, train.tokens.bounds, test.values, test.bounds)
    return RuleSet(fingerprint((size, *tokens)), measure, tuple(map(rule, ORDERS)))
