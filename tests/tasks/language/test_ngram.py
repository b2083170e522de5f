import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metarnn.tasks.language import BOS, Tokens, load
from metarnn.tasks.language.ngram import KneserNey, Laplace

V = 7
DOCUMENTS = st.lists(
    st.lists(st.integers(3, V - 1), min_size=1, max_size=12), min_size=1, max_size=5
)


def tokens(documents):
    bounds = np.concatenate([[0], np.cumsum([len(d) for d in documents])])
    return Tokens(np.concatenate([np.array(d) for d in documents]), bounds)


def by_hand(documents, order):
    """Kneser–Ney from its definition, with dictionaries."""
    raw = [Counter() for _ in range(order + 1)]
    for document in documents:
        text = [BOS] * max(order - 1, 1) + document
        for i, word in enumerate(text):
            if word != BOS:
                for n in range(1, order + 1):
                    raw[n][tuple(text[i - n + 1 : i + 1])] += 1
    counts = [Counter() for _ in range(order + 1)]
    counts[order] = raw[order]
    for n in range(1, order):
        for gram in raw[n + 1]:
            counts[n][gram[1:]] += 1
    sums, kinds = defaultdict(float), defaultdict(int)
    discounts = [math.nan]
    for n in range(1, order + 1):
        for gram, c in counts[n].items():
            sums[gram[:-1]] += c if len(gram) == n else 0
            kinds[gram[:-1]] += 1
        once = sum(c == 1 for c in counts[n].values())
        twice = sum(c == 2 for c in counts[n].values())
        discounts.append(once / (once + 2 * twice) if once else 0.5)

    def p(context, word):
        found = 1 / V
        for n in range(1, order + 1):
            h = tuple(context[len(context) - n + 1 :])
            if sums[h]:
                D = discounts[n]
                found = max(counts[n][(*h, word)] - D, 0) / sums[h] + D * kinds[h] / sums[h] * found
        return found

    return p


@settings(max_examples=60)
@given(DOCUMENTS, DOCUMENTS, st.integers(1, 4))
def test_kneser_ney_is_its_definition(train, test, order):
    model, p = KneserNey(tokens(train), V, order), by_hand(train, order)
    expected = 0.0
    for document in test:
        context = [BOS] * max(order - 1, 1)
        for word in document:
            expected -= math.log(p(context, word))
            context.append(word)
    assert model.nats(tokens(test)) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60)
@given(DOCUMENTS, st.lists(st.integers(3, V - 1), max_size=6), st.integers(1, 5))
@pytest.mark.parametrize("kind", [KneserNey, Laplace])
def test_probabilities_after_any_context_sum_to_one(kind, train, context, order):
    p = kind(tokens(train), V, order).distribution(context)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert (p > 0).all()


@settings(max_examples=30)
@given(DOCUMENTS, DOCUMENTS, st.integers(1, 4))
def test_laplace_is_its_definition(train, test, order):
    counts, sums = Counter(), Counter()

    def contexts(document):
        text = [BOS] * max(order - 1, 1) + document
        for i in range(len(text) - len(document), len(text)):
            yield tuple(text[i - order + 1 : i]), text[i]

    for document in train:
        for h, w in contexts(document):
            counts[h, w] += 1
            sums[h] += 1
    pairs = [pair for document in test for pair in contexts(document)]
    expected = -sum(math.log((counts[h, w] + 1) / (sums[h] + V)) for h, w in pairs)
    assert Laplace(tokens(train), V, order).nats(tokens(test)) == pytest.approx(expected)


def test_laplace_gets_worse_with_the_order_where_kneser_ney_gets_better():
    corpus = load("pydoc")
    train, test, size = corpus["train"].tokens, corpus["test"].tokens, len(corpus.vocabulary)
    kneser_ney = [KneserNey(train, size, n).bits(test) for n in (2, 3, 5)]
    laplace = [Laplace(train, size, n).bits(test) for n in (4, 5, 6)]
    assert kneser_ney == sorted(kneser_ney, reverse=True)
    assert laplace == sorted(laplace)
    assert laplace[1] > 1.3 * kneser_ney[2]
