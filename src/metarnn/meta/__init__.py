"""Learning to learn: adaptation, bi-level objectives, learners for episodes."""

from metarnn.meta.adapt import adapt, objective
from metarnn.meta.implicit import implicit
from metarnn.meta.optimisers import SGD, Adam, Optimiser, optimiser

__all__ = [
    "SGD",
    "Adam",
    "Optimiser",
    "adapt",
    "implicit",
    "objective",
    "optimiser",
]
