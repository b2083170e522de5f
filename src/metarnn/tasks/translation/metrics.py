"""How good translations are."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from metarnn.cells import check

Tokens = Sequence[Hashable]
SMOOTHING = ("none", "exp", "floor", "add-one")
FLOOR = 0.1


def bleu(
    predicted: Sequence[Tokens],
    labels: Sequence[Tokens],
    k: int = 4,
    weights: Sequence[float] | None = None,
    smoothing: str = "none",
) -> float:
    """exp(min(0, 1 - len_label / len_pred)) · exp(Σ_{n=1}^k w_n log p_n), 0 … 100

    p_n is the share of the n-grams of all predictions that stand in their labels, each as often as
    it does there; lengths are those of all predictions and all labels (Papineni et al. 2002).

    >>> bleu(["the cat sat on the mat".split()], ["the cat sat on a mat".split()])
    53.7...

    Args:
        predicted: sequences of tokens, and `labels`, what they should be
        k: longest n-grams
        weights: w_n, by default 1/k each
        smoothing: of a p_n that is 0, as sacrebleu has it: "exp" halves it each time, "floor"
            counts 0.1 matches; "add-one" counts one more of each n-gram with n > 1
    """
    check.size("k", k)
    check.one_of("smoothing", smoothing, SMOOTHING)
    if len(predicted) != len(labels):
        check.refuse("predicted", f"{len(predicted)} sequences", f"{len(labels)}, one a label")
    w = [1 / k] * k if weights is None else list(weights)
    if len(w) != k:
        check.refuse("weights", weights, f"{k} numbers, one for each n")
    matched, total = [0] * k, [0] * k
    for y, label in zip(predicted, labels, strict=True):
        for n in range(1, k + 1):
            found = ngrams(y, n)
            matched[n - 1] += sum((found & ngrams(label, n)).values())
            total[n - 1] += sum(found.values())
    length, wanted = sum(map(len, predicted)), sum(map(len, labels))
    if not length:
        return 0.0
    score, halves = min(0.0, 1 - wanted / length), 1.0
    for n in range(k):
        m, t = float(matched[n]), float(total[n])
        if smoothing == "add-one" and n:
            m, t = m + 1, t + 1
        if not m and t and smoothing in ("exp", "floor"):
            halves *= 2
            m = 1 / halves if smoothing == "exp" else FLOOR
        if not m:
            return 0.0
        score += w[n] * math.log(m / t)
    return 100 * math.exp(score)


def ngrams(tokens: Tokens, n: int) -> Counter[tuple[Hashable, ...]]:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


_ENTITIES = {"&quot;": '"', "&amp;": "&", "&lt;": "<", "&gt;": ">"}
_13A = (
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),  # punctuation of ASCII
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),  # full stop and comma, but in numbers
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)


def words(text: str, lowercase: bool = False) -> list[str]:
    """The words of a text as scores count them, called "13a" (NIST's mteval-v13a).

    >>> words("It's 1,000.5 (or so), isn't it?")
    ["It's", '1,000.5', '(', 'or', 'so', ')', ',', "isn't", 'it', '?']
    """
    text = text.lower() if lowercase else text
    text = text.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES.items():
        text = text.replace(entity, character)
    text = f" {text} "
    for pattern, parted in _13A:
        text = pattern.sub(parted, text)
    return text.split()


def text_bleu(predicted: Sequence[str], labels: Sequence[str], lowercase: bool = False) -> float:
    """BLEU of texts, equal to sacrebleu's own: words by "13a", "exp" smoothing, k = 4."""
    predicted_words = [words(text, lowercase) for text in predicted]
    label_words = [words(text, lowercase) for text in labels]
    return bleu(predicted_words, label_words, smoothing="exp")


def sacrebleu(
    predicted: Sequence[str], labels: Sequence[str], lowercase: bool = False
) -> tuple[float, str]:
    """BLEU by the package sacrebleu, and the signature that makes it comparable."""
    metric = _package().BLEU(lowercase=lowercase)
    score = metric.corpus_score(list(predicted), [list(labels)]).score
    return score, str(metric.get_signature())


def chrf(predicted: Sequence[str], labels: Sequence[str], lowercase: bool = False) -> float:
    """chrF2, of n-grams of characters (Popović 2015), by the package sacrebleu; 0 … 100."""
    metric = _package().CHRF(lowercase=lowercase)
    return metric.corpus_score(list(predicted), [list(labels)]).score


def exact_match(predicted: Sequence[Any], labels: Sequence[Any]) -> float:
    """The share of predictions that are their labels."""
    return sum(y == label for y, label in zip(predicted, labels, strict=True)) / len(labels)


def edit_distance(one: Tokens, other: Tokens) -> int:
    """Fewest insertions, deletions and substitutions that make one the other (Levenshtein).

    >>> edit_distance("kitten", "sitting")
    3
    """
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def error_rate(predicted: Sequence[Tokens], labels: Sequence[Tokens]) -> float:
    """Edits over the length of the labels, all together: of texts, the character error rate."""
    edits = sum(map(edit_distance, predicted, labels))
    return edits / max(sum(map(len, labels)), 1)


def _package() -> Any:
    try:
        from sacrebleu import metrics  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "this score needs the package sacrebleu: pip install 'metarnn[bleu]'"
        ) from None
    return metrics
