import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metarnn.tasks.translation import metrics

LABELS = [
    "the cat sat on the mat .",
    "a man , 1,000.5 years old - said : « hi ! »",
    "It's over (now)",
]
PREDICTED = ["the cat is on the mat .", "a man , 1,000.5 years said : « hi »", "It is over, now"]


def test_the_formula_by_hand():
    y, label = ["the", "the", "the", "cat"], ["the", "cat", "sat", "on", "the", "mat"]
    # 1-grams: the twice of three, cat: 3/4; 2-grams: the the, the the, the cat: 1/3.
    short = math.exp(1 - 6 / 4)
    assert metrics.bleu([y], [label], k=1) == pytest.approx(100 * short * 3 / 4)
    both = math.exp(0.5 * math.log(3 / 4) + 0.5 * math.log(1 / 3))
    assert metrics.bleu([y], [label], k=2) == pytest.approx(100 * short * both)
    weighted = (3 / 4) ** 0.9 * (1 / 3) ** 0.1
    found = metrics.bleu([y], [label], k=2, weights=[0.9, 0.1])
    assert found == pytest.approx(100 * short * weighted)
    assert metrics.bleu([y], [label], k=3) == 0  # no three words in a row are right
    assert metrics.bleu([label], [label]) == pytest.approx(100)
    assert metrics.bleu([[]], [label]) == 0


def test_texts_score_as_by_sacrebleu():
    pytest.importorskip("sacrebleu")
    for lowercase in (False, True):
        theirs, signature = metrics.sacrebleu(PREDICTED, LABELS, lowercase)
        assert metrics.text_bleu(PREDICTED, LABELS, lowercase) == pytest.approx(theirs)
        assert f"case:{'lc' if lowercase else 'mixed'}" in signature
        assert "tok:13a" in signature


@pytest.mark.parametrize(
    ("ours", "theirs"), [("none", "none"), ("exp", "exp"), ("floor", "floor"), ("add-one", "add-k")]
)
def test_every_smoothing_is_sacrebleus(ours, theirs):
    package = pytest.importorskip("sacrebleu").metrics
    draw = random.Random(0)
    for length in (2, 3, 5, 9, 30):
        for k in (1, 2, 4):
            sides = [[draw.choices("abcde", k=length) for _ in range(3)] for _ in range(2)]
            texts = [[" ".join(tokens) for tokens in side] for side in sides]
            metric = package.BLEU(tokenize="none", smooth_method=theirs, max_ngram_order=k)
            score = metric.corpus_score(texts[0], [texts[1]]).score
            assert metrics.bleu(*sides, k=k, smoothing=ours) == pytest.approx(score, abs=1e-9)


@given(st.text(alphabet="aZ9 .,-&<>\"'()/:$ß…„", max_size=30))
def test_words_are_those_of_sacrebleu(text):
    package = pytest.importorskip("sacrebleu")
    tokenizer = package.tokenizers.tokenizer_13a.Tokenizer13a()
    assert metrics.words(text) == tokenizer(text.rstrip()).split()


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_edit_distance_is_the_shortest_of_all_ways(one, other):
    def brute(a, b):
        if not a or not b:
            return len(a) + len(b)
        if a[0] == b[0]:
            return brute(a[1:], b[1:])
        return 1 + min(brute(a[1:], b), brute(a, b[1:]), brute(a[1:], b[1:]))

    assert metrics.edit_distance(one, other) == brute(one, other)


def test_shares_of_what_is_right():
    assert metrics.exact_match(["a", "b"], ["a", "c"]) == 0.5
    assert metrics.error_rate(["abc", "x"], ["abd", "xyz"]) == pytest.approx(3 / 6)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="weights"):
        metrics.bleu([["a"]], [["a"]], k=2, weights=[1.0])
    with pytest.raises(ValueError, match="1 sequences"):
        metrics.bleu([["a"]], [])
    with pytest.raises(ValueError, match="smoothing"):
        metrics.bleu([["a"]], [["a"]], smoothing="exponential")
