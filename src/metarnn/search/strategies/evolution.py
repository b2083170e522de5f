"""Regularised evolution (Real et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from metarnn.cells import check
from metarnn.search.known import KNOWN
from metarnn.search.space import Choices, Space
from metarnn.search.strategies.base import Given
from metarnn.search.strategies.scratch import Scratch


class Evolution(Scratch):
    """The best of some drawn from the population has a child; the oldest of all dies.

    The population is what was tried last. It begins with the units that `start_from` names, and
    with others at random.
    """

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self.ancestors = list(ancestors(given.space, given.options.start_from))

    def propose(self) -> Choices:
        known, size = self.ancestors, self.options.population
        if self.proposed < len(known):
            return known[self.proposed]
        if self.proposed < size or len(self.tried) < self.options.tournament:
            return self.space.draw(self.random)
        alive = self.tried[-size:]
        drawn = self.random.sample(alive, self.options.tournament)
        parent = min(drawn, key=lambda each: each.score)
        # Training is the same each time: a unit tried again would tell nothing.
        return self.neighbour(parent.choices)


def ancestors(space: Space, names: Iterable[str]) -> Iterator[Choices]:
    """The named units as points of the space."""
    for name in names:
        check.one_of("start_from", name, ("known", "none", *KNOWN))
        if name in KNOWN:
            yield space.encode(KNOWN[name])
        elif name == "known":
            for unit in KNOWN.values():
                with suppress(ValueError):
                    yield space.encode(unit)
