"""What a classification is worth beside: the most frequent class, the nearest neighbour."""

from __future__ import annotations

import numpy as np

from metarnn.tasks.classification.examples import Part, Scheme

PRODUCTS = 2_000_000_000  # more than this are not worth the wait


def majority(train: Part, test: Part) -> float:
    """The accuracy of always answering the class that is most frequent in training."""
    labels, counts = np.unique(np.array(train.y), return_counts=True)
    return float((np.array(test.y) == labels[counts.argmax()]).mean())


def nearest(train: Part, test: Part, scheme: Scheme) -> float | None:
    """The accuracy of the label of the nearest training sequence, by the Euclidean distance; None
    where sequences differ in length, are texts, have gaps, or are too many."""
    lengths = {len(x) for part in (train, test) for x in part.x}
    products = len(test) * len(train) * len(train.x[0]) * scheme.channels
    if len(lengths) > 1 or not scheme.channels or scheme.missing or products > PRODUCTS:
        return None
    known = np.stack([x.ravel() for x in train.x]).astype(np.float64)
    asked = np.stack([x.ravel() for x in test.x]).astype(np.float64)
    answer = []
    for rows in np.array_split(asked, max(len(asked) * len(known) // 2_000_000, 1)):
        squares = (known**2).sum(1) - 2 * rows @ known.T
        answer.append(np.array(train.y)[squares.argmin(1)])
    return float((np.concatenate(answer) == np.array(test.y)).mean())
