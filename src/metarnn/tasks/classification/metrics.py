"""How good a classification is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BINS = 15


def confusion(truth: np.ndarray, guess: np.ndarray, classes: int) -> np.ndarray:
    """[K, K] counts, the true class down and the guessed one across.

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (truth, guess), 1)
    return counts


def f1(counts: np.ndarray) -> np.ndarray:
    """2·TP / (2·TP + FP + FN) of each class, of a confusion matrix; NaN for one never met."""
    met = counts.sum(0) + counts.sum(1)
    return np.where(met > 0, 2 * np.diagonal(counts) / np.maximum(met, 1), np.nan)


def macro_f1(counts: np.ndarray) -> float:
    """The mean over classes that occur, as truth or as guess."""
    return float(np.nanmean(f1(counts)))


def calibration_error(probability: np.ndarray, right: np.ndarray) -> float:
    """Σ n_b/n |share that is right - mean confidence| over bins of equal width of the confidence.

    >>> calibration_error(np.array([0.9, 0.9]), np.array([True, False]))
    0.4
    """
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    error = 0.0
    for b in np.unique(bins):
        inside = bins == b
        error += inside.mean() * abs(right[inside].mean() - probability[inside].mean())
    return float(error)


def edit_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """The fewest insertions, deletions and replacements that make b of a (Levenshtein 1965)."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            cost = min(row[j] + 1, row[j - 1] + 1, before + (left != right))
            before, row[j] = row[j], cost
    return row[-1]


def multi_label(truth: np.ndarray, guess: np.ndarray) -> dict[str, float]:
    """Scores of [N, K] of 0 and 1: all labels of an example right, F1 over all, over classes."""
    hits = (truth * guess).sum(0)
    met = truth.sum(0) + guess.sum(0)
    each = np.where(met > 0, 2 * hits / np.maximum(met, 1), np.nan)
    return {
        "all_right": float((truth == guess).all(1).mean()),
        "micro_f1": float(2 * hits.sum() / max(met.sum(), 1)),
        "macro_f1": float(np.nanmean(each)) if (met > 0).any() else 0.0,
    }


def scores(probabilities: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """nll, accuracy, macro_f1 and calibration error of [N, K] probabilities and [N] classes."""
    guess = probabilities.argmax(1)
    right = guess == truth
    chosen = probabilities[np.arange(len(truth)), truth]
    return {
        "nll": float(-np.log(np.maximum(chosen, 1e-30)).mean()),
        "accuracy": float(right.mean()),
        "macro_f1": macro_f1(confusion(truth, guess, probabilities.shape[1])),
        "calibration_error": calibration_error(probabilities.max(1), right),
    }
