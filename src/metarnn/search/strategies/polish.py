"""Local search: what is left to be done once a search has found the rough shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metarnn.search.space import Choices
from metarnn.search.strategies.base import Given
from metarnn.search.strategies.scratch import Candidate, Scratch


class Polish(Scratch):
    """Some units, then neighbours of the best so far, one decision made otherwise in each.

    Shared weights tell badly what a node should read: small shares are made up for by large
    weights. Weights of one's own tell.

    Args:
        units: where to begin
        tried: those of them that were trained so already
    """

    def __init__(
        self, given: Given, units: Sequence[Choices] = (), tried: Sequence[Candidate] = ()
    ) -> None:
        super().__init__(given)
        self.units, self.tried = list(units), list(tried)

    @property
    def finished(self) -> bool:
        return len(self.tried) >= self.all

    @property
    def all(self) -> int:
        """How many units are tried."""
        return len(self.units) + self.options.polish

    def enough(self) -> bool:
        return self.proposed >= self.all

    def propose(self) -> Choices:
        if self.proposed < len(self.units):
            return self.units[self.proposed]
        if not self.tried:
            return self.neighbour(self.random.choice(self.units))
        best = min(self.tried, key=lambda each: each.score).choices
        return self.neighbour(best)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "units": [list(choices) for choices in self.units]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.units = [self.space.check(choices) for choices in state["units"]]
