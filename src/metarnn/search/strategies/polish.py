"""Local search: what is left to be done once a search has found the rough shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metarnn.search.space import Choices
from metarnn.search.strategies.base import Given
from metarnn.search.strategies.scratch import Scratch


class Polish(Scratch):
    """Some units, then neighbours of the best so far, one decision made otherwise in each.

    Shared weights tell badly what a node should read: small shares are made up for by large
    weights. Weights of one's own tell.
    """

    def __init__(self, given: Given, units: Sequence[Choices] = ()) -> None:
        super().__init__(given)
        self.units = list(units)

    @property
    def finished(self) -> bool:
        return len(self.tried) >= len(self.units) + self.options.polish

    def propose(self) -> Choices:
        if len(self.tried) < len(self.units):
            return self.units[len(self.tried)]
        best = min(self.tried, key=lambda each: each.score).choices
        return self.neighbour(best)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "units": [list(choices) for choices in self.units]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.units = [self.space.check(choices) for choices in state["units"]]
