"""Scores against closed forms and brute force."""

import itertools

import numpy as np
import pytest

from metarnn.tasks.classification import metrics


def test_f1_of_each_class_is_the_harmonic_mean_of_precision_and_recall():
    random = np.random.default_rng(0)
    truth, guess = random.integers(4, size=(2, 300))
    counts = metrics.confusion(truth, guess, 4)
    for k, score in enumerate(metrics.f1(counts)):
        precision = (truth[guess == k] == k).mean()
        recall = (guess[truth == k] == k).mean()
        assert score == pytest.approx(2 * precision * recall / (precision + recall))
    assert counts.sum() == 300


def test_a_class_that_never_occurs_is_no_part_of_the_mean():
    counts = metrics.confusion(np.array([0, 1]), np.array([0, 1]), 5)
    assert metrics.macro_f1(counts) == 1.0


def test_who_is_right_as_often_as_sure_is_calibrated():
    sure = np.repeat([0.2, 0.5, 0.7], 1000)
    right = np.concatenate([np.arange(1000) < 1000 * p for p in (0.2, 0.5, 0.7)])
    assert metrics.calibration_error(sure, right) == pytest.approx(0, abs=1e-9)
    assert metrics.calibration_error(np.ones(10), np.arange(10) < 4) == pytest.approx(0.6)


def brute_force(a, b):
    """The recursion itself, without a table."""
    if not a or not b:
        return len(a) + len(b)
    skip = min(brute_force(a[1:], b), brute_force(a, b[1:])) + 1
    return min(skip, brute_force(a[1:], b[1:]) + (a[0] != b[0]))


def test_edit_distance_is_that_of_the_recursion():
    words = [list(w) for n in range(4) for w in itertools.product([0, 1], repeat=n)]
    for a, b in itertools.product(words, words):
        assert metrics.edit_distance(a, b) == brute_force(a, b)


def test_scores_of_probabilities():
    p = np.array([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]])
    found = metrics.scores(p, np.array([0, 1, 1]))
    assert found["nll"] == pytest.approx(-np.log([0.9, 0.6, 0.2]).mean())
    assert found["accuracy"] == pytest.approx(2 / 3)


def test_several_labels():
    truth = np.array([[1.0, 0], [1, 1], [0, 0]])
    found = metrics.multi_label(truth, np.array([[1.0, 0], [1, 0], [0, 1]]))
    assert found == {
        "all_right": pytest.approx(1 / 3),
        "micro_f1": pytest.approx(2 * 2 / (3 + 3)),
        "macro_f1": pytest.approx((1 + 0) / 2),
    }
