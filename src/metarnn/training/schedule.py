"""Learning rates as pure functions of how far a training has come."""

from __future__ import annotations

import math
from collections.abc import Callable

# A shape is a function of the step, counted from 1, the length of the warm-up, and the share of the
# way from the warm-up's end to the end of the training, 0 … 1.
SHAPES: dict[str, Callable[[int, int, float], float]] = {
    "constant": lambda step, warmup, done: 1.0,
    "cosine": lambda step, warmup, done: (1 + math.cos(math.pi * done)) / 2,
    "linear": lambda step, warmup, done: 1 - done,
    # Constant, then a linear cool-down (Hägele et al. 2024), here over the last three quarters:
    # before it nothing depends on the length of the training, which can still be changed.
    "trapezoid": lambda step, warmup, done: min((1 - done) / 0.75, 1.0),
    # 1 at the warm-up's end, then as in "Attention is all you need" (Vaswani et al. 2017).
    "inverse-sqrt": lambda step, warmup, done: math.sqrt(max(warmup, 1) / max(step, warmup, 1)),
}
FALLING = ("cosine", "linear", "trapezoid")  # they need to know where the end is


def factor(shape: str, step: int, progress: float, *, warmup: int = 0, floor: float = 0.0) -> float:
    """The share of the learning rate that update `step` (1, 2, …) gets.

        warm-up:  step / warmup,                       step ≤ warmup
        then:     floor + (1 - floor) · shape(done),   for "cosine", "linear" and "trapezoid"

    Args:
        shape: "constant", "cosine", "linear", "trapezoid" or "inverse-sqrt"
        step: the update about to be made
        progress: the share of the training done before it, 0 … 1. The share that the warm-up took
            is not known here but follows: with n updates, progress = (step - 1) / n
        warmup: updates over which it rises from 0
        floor: where falling shapes end

    >>> [factor("linear", step, (step - 1) / 4) for step in (1, 2, 3, 4)]
    [1.0, 0.75, 0.5, 0.25]
    >>> [factor("constant", step, 0, warmup=4) for step in (1, 2, 3, 4, 5)]
    [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    if step <= warmup:
        return step / warmup
    # progress = (step - 1) / n gives n, so warm-up ended at warmup / n of the way.
    ended = progress * warmup / (step - 1) if step > 1 else 0.0
    done = min(max((progress - ended) / (1 - ended), 0.0), 1.0) if ended < 1 else 1.0
    shaped = SHAPES[shape](step, warmup, done)
    return floor + (1 - floor) * shaped if shape in FALLING else shaped
