"""Averages of weights over the course of a training, which often score better than the last."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

EARLY = 9  # the average of few updates is of a tenth of them, not of the starting weights


class Average:
    """A running average of a model's parameters.

        a ← a + μ (w - a)

    with μ = max(1 - decay, 9 / (9 + n)) at the n-th update for an exponential one, which begins as
    the mean of about the last tenth of all updates; with μ = 1/n for the plain mean (Polyak &
    Juditsky 1992), which is what averaged SGD is.

    Args:
        model: whose parameters to average
        decay: of an exponential average; None for the plain mean
    """

    def __init__(self, model: nn.Module, decay: float | None = None) -> None:
        self.decay = decay
        self.count = 0
        self.parameters = dict(model.named_parameters())
        self.values: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters as they are now."""
        self.count += 1
        if self.count == 1:
            self.values = {name: w.detach().clone() for name, w in self.parameters.items()}
            return
        share = 1 / self.count
        if self.decay is not None:
            share = max(1 - self.decay, EARLY / (EARLY + self.count))
        for name, w in self.parameters.items():
            self.values[name].lerp_(w.detach(), share)

    @contextmanager
    def applied(self) -> Generator[None]:
        """Inside the block the model has the averages; after it, exactly its own weights again."""
        if not self.values:
            yield
            return
        with torch.no_grad():
            own = {name: w.detach().clone() for name, w in self.parameters.items()}
            self._put(self.values)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, values: Mapping[str, Tensor]) -> None:
        for name, w in self.parameters.items():
            w.copy_(values[name])

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "values": dict(self.values)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise a ValueError where the averages are not those of this model."""
        count, values = state["count"], state["values"]
        if type(count) is not int or count < 0 or not isinstance(values, dict):
            raise ValueError(f"the averages' count is {count!r}: expected a whole number")
        expected = {n: w.shape for n, w in self.parameters.items()} if count else {}
        found = {name: getattr(value, "shape", None) for name, value in values.items()}
        if found != expected:
            every = [*expected, *found]
            wrong = next((n for n in every if expected.get(n) != found.get(n)), every[-1])
            raise ValueError(
                f"the average of {wrong!r} has the shape {found.get(wrong)}: "
                f"expected {expected.get(wrong)}, that of the model"
            )
        self.count = count
        self.values = {
            n: values[n].to(w.device, w.dtype, copy=True)
            for n, w in self.parameters.items()
            if count
        }


def stalled(scores: list[float], window: int) -> bool:
    """Whether the last score is worse than the best before the `window` scores ahead of it.

    The trigger of NT-ASGD (Merity et al. 2017), after which SGD begins to average.

    >>> stalled([9, 8, 7, 6], window=2)
    False
    >>> stalled([6, 7, 7, 7], window=2)
    True
    """
    earlier = scores[:-1]
    return len(earlier) > window and scores[-1] > min(earlier[: len(earlier) - window])
