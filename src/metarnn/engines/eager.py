"""The reference loop as an engine: slow, and right for every cell and every transform."""

from __future__ import annotations

from torch import Tensor

from metarnn.cells import State
from metarnn.engines import reference
from metarnn.engines.engine import Engine, Request
from metarnn.engines.modes import transformed
from metarnn.engines.recurrence import Recurrence


class EagerEngine(Engine):
    name = "eager"
    reason = "a loop over time in plain torch runs any cell"
    kernels = "the reference loop"

    def obstacle(self, request: Request) -> str:
        return checkpoint_obstacle(request)

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        return reference.run(recurrence)


def checkpoint_obstacle(request: Request) -> str:
    if "checkpoint_every" in request.needs and transformed():
        return "checkpoint_every works with plain autograd only, not under torch.func"
    return ""
