"""Numbers that stop being numbers, found at the step where it happens."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

ADVICE = "Try a lower --lr, a lower --clip, a longer --warmup, or --precision float32."


class NotFinite(ArithmeticError):
    """A loss or a gradient became infinite or NaN.

    step       the update concerned, counted from 1
    parameter  the first parameter whose gradient is, "" where only the loss is
    """

    def __init__(self, step: int, loss: float, broken: list[str]) -> None:
        more = f" (and of {len(broken) - 1} more)" if len(broken) > 1 else ""
        gradient = f"that of {broken[0]!r}{more} is not" if broken else "all of them are"
        super().__init__(
            f"step {step}: the loss is {loss:g}, and of its gradients {gradient} finite. {ADVICE}"
        )
        self.step, self.parameter = step, broken[0] if broken else ""


class Guard:
    """Stops a training at the first loss or gradient that is not finite.

    On a CPU that is before the update is made. On a GPU it is one update later: looking at once
    would make the CPU wait for it at every step. No checkpoint is written in between.
    """

    def __init__(self) -> None:
        self._noted: tuple[int, list[str], Tensor, torch.cuda.Event | None] | None = None

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
        broken = [name for name, norm in zip(names, norms, strict=True) if not math.isfinite(norm)]
        if broken or not math.isfinite(loss):
            raise NotFinite(step, loss, broken)
