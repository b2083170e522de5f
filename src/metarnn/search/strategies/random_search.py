"""Random search: what every other strategy has to beat."""

from __future__ import annotations

from metarnn.search.space import Choices
from metarnn.search.strategies.scratch import Scratch


class RandomSearch(Scratch):
    """Units at random, each trained for a while; the best are kept."""

    def propose(self) -> Choices:
        return self.space.draw(self.random)
