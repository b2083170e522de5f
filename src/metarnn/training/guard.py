"""Numbers that stop being numbers, found at the step where it happens."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

EXPLODED = 100.0  # times the usual norm of the gradients, in the update before
ADVICE = "Try a lower --lr, a lower --clip, a longer --warmup, or --precision float32."


class NotFinite(ArithmeticError):
    """A loss or a gradient became infinite or NaN.

    step       the update concerned, counted from 1
    parameter  the first parameter whose gradient is, "" where only the loss is
    layer      where it began: the first layer to make such a number, "" where none is found
    """

    def __init__(
        self, step: int, loss: float, broken: list[str], grown: float = 1.0, layer: str = ""
    ) -> None:
        more = f" (and of {len(broken) - 1} more)" if len(broken) > 1 else ""
        gradient = f"that of {broken[0]!r}{more} is not" if broken else "all of them are"
        super().__init__(
            f"step {step}: the loss is {loss:g}, and of its gradients {gradient} finite. "
            f"{_cause(loss, grown, layer)} {ADVICE}"
        )
        self.step, self.parameter, self.layer = step, broken[0] if broken else "", layer
        self.arguments = (step, loss, broken, grown)

    def at(self, layer: str) -> NotFinite:
        """The same, with the layer where it began."""
        return NotFinite(*self.arguments, layer)


def _cause(loss: float, grown: float, layer: str) -> str:
    """What most likely happened."""
    if layer == "input":
        return "Likely cause: numbers of the batch that are not finite; look at the data."
    where = f" It begins in {layer!r}." if layer else ""
    if grown > EXPLODED:
        return f"Likely cause: gradients exploded, to {grown:,.0f} times the usual.{where}"
    if math.isfinite(loss):
        return f"Likely cause: an overflow on the way back through time.{where}"
    return f"Likely cause: an overflow, a logarithm of 0 or a division by 0.{where}"


class Guard:
    """Stops a training at the first loss or gradient that is not finite.

    On a CPU that is before the update is made. On a GPU it is one update later: looking at once
    would make the CPU wait for it at every step. No checkpoint is written in between.
    """

    def __init__(self) -> None:
        self._noted: tuple[int, list[str], Tensor, torch.cuda.Event | None] | None = None
        self.loss: float | None = None  # the last one that was checked
        self._norm = self._usual = 0.0  # of the gradients: the last, and what it mostly is

    @torch.no_grad()
    def look(self, step: int, loss: Tensor, norms: Mapping[str, Tensor]) -> None:
        """Take in a loss and the norms of its gradients."""
        values = torch.stack([each.detach().double() for each in (loss, *norms.values())])
        if values.device.type != "cuda":
            self._noted = (step, list(norms), values, None)
            self.check()
            return
        self.check()
        values = values.to("cpu", non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._noted = (step, list(norms), values, event)

    def check(self) -> None:
        """Raise NotFinite if what was taken in last was not finite."""
        if self._noted is None:
            return
        step, names, values, event = self._noted
        self._noted = None
        if event is not None:
            event.synchronize()
        loss, *norms = values.tolist()
        self.loss = loss
        broken = [name for name, norm in zip(names, norms, strict=True) if not math.isfinite(norm)]
        if broken or not math.isfinite(loss):
            grown = self._norm / self._usual if self._usual else 1.0
            raise NotFinite(step, loss, broken, grown)
        self._norm = math.hypot(*norms)
        # In logarithms, since what explodes would be the mean of all; the first is taken as it is.
        if self._norm > 0:
            share = 0.1 if self._usual else 1.0
            self._usual = (self._usual or self._norm) ** (1 - share) * self._norm**share
