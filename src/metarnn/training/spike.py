"""Losses that jump: seen, so that a training can go back and take smaller steps."""

from __future__ import annotations

import math

from metarnn.cells import check

MEMORY = 0.98  # of the usual loss: it follows the last 50 updates
BEGIN = 20  # updates before which nothing is usual
LOWER = 0.5  # what the learning rate is multiplied with each time
MOST = 10  # times to go back; a training that spikes on has another fault


class Spikes:
    """Whether a loss is so much higher than usual that the weights must be spoilt.

    usual ← 0.98 usual + 0.02 loss

    >>> spikes = Spikes(3.0)
    >>> [spikes.seen(loss) for loss in [1.0] * 30 + [2.5, 3.5]][-2:]
    [False, True]

    times  how many times the usual loss is too much; 0 sees nothing
    """

    def __init__(self, times: float) -> None:
        self.times, self.usual, self.count = times, 0.0, 0

    @property
    def state(self) -> tuple[float, int]:
        return self.usual, self.count

    @state.setter
    def state(self, state: tuple[float, int]) -> None:
        usual, count = state
        self.usual, self.count = check.number("usual", usual), check.size("count", count, least=0)

    def seen(self, loss: float) -> bool:
        if not self.times:
            return False
        if not math.isfinite(loss):
            return True
        if self.count >= BEGIN and loss > self.times * max(self.usual, 1e-12):
            return True
        share = 1 - MEMORY if self.count else 1.0
        self.usual += share * (loss - self.usual)
        self.count += 1
        return False
