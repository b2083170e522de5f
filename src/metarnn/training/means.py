"""What is measured at every update, until the next line of metrics."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from metarnn.training.world import World

COUNT = "count"


class Means:
    """Means by name, weighted by tokens, over all processes.

    Numbers may be tensors on a GPU: they are added up there, and nobody waits for them until the
    means are asked for.
    """

    def __init__(self) -> None:
        self._sums: dict[str, float | Tensor] = {}

    def add(self, numbers: Mapping[str, float | Tensor], weight: float) -> None:
        for name, value in numbers.items():
            value = value.detach().double() if isinstance(value, Tensor) else value
            self._sums[name] = self._sums.get(name, 0.0) + value * weight

    def count(self, tokens: float) -> None:
        """So many tokens more, by which all sums are divided."""
        self.add({COUNT: tokens}, 1.0)

    def take(self, world: World) -> dict[str, float]:
        """The means so far; what is added from now on belongs to the next ones."""
        totals = self.state_dict(world)
        self._sums = {}
        count = totals.pop(COUNT)
        return {name: total / count for name, total in totals.items()}

    def state_dict(self, world: World) -> dict[str, float]:
        """The sums of all processes together."""
        names = list(self._sums)
        sums = world.sum([float(self._sums[name]) for name in names])
        return dict(zip(names, sums, strict=True))

    def load_state_dict(self, state: Mapping[str, float], world: World) -> None:
        ours = 1.0 if world.is_first else 0.0  # one process has them for all
        self._sums = {name: ours * value for name, value in state.items()}
