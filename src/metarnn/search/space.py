"""What can be found: decisions with options, each set of choices a unit."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from metarnn.cells import Cell, check
from metarnn.search.genotype import Genotype

Choices = tuple[int, ...]  # the option taken at each decision
DRAWN = 5
NEIGHBOURHOODS = 100
TRIES = 10_000  # draws until a space without useful units is given up
# What the state of a mixture stays within. Units of a space may be bounded each, their mixture is
# not: products of sums of states grow beyond any number in a few steps. On pydoc states are up to 8
# in a search that goes well; within 30 one of three was lost, within 10 none.
BOUND = 10.0


@dataclass(frozen=True)
class Decision:
    """One thing to be decided, such as which operation a node is.

    `operation` tells that the options are operations, by their first word.
    """

    name: str
    options: tuple[str, ...]
    operation: bool = False


class Space:
    """A space of units. A subclass lists its decisions and says what choices mean.

    `mixture` is the unit in which every decision is still open: it computes all options and adds
    them up, each by its share, which come in the vector `mix` of the cell: for each decision, one
    after the other, a number an option. Where these are 0 and 1 it is exactly the unit of those
    choices, as long as its state is within ±BOUND.
    """

    decisions: ClassVar[tuple[Decision, ...]]

    def genotype(self, choices: Choices) -> Genotype:
        """The unit of these choices, without what does not reach its next state."""
        raise NotImplementedError

    def encode(self, genotype: Genotype) -> Choices:
        """The choices that make this unit; a ValueError says why it is no point of the space."""
        raise NotImplementedError

    def mixture(self, input_size: int, hidden_size: int) -> Cell:
        """All units at once, with the shares of the options in the vector `mix`."""
        raise NotImplementedError

    def inherited(
        self, choices: Choices, weights: Mapping[str, Tensor], hidden_size: int
    ) -> dict[str, Tensor]:
        """The weights of the unit of these choices, out of those of the mixture."""
        raise NotImplementedError

    def allows(self, genotype: Genotype) -> bool:
        """Whether a unit is worth a try: it depends on its input and on the past."""
        return genotype.useful

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(decision.options) for decision in self.decisions)

    def check(self, choices: Sequence[int]) -> Choices:
        """Choices as they come from a file."""
        for k, size in zip(choices, self.sizes, strict=False):
            if type(k) is not int or not 0 <= k < size:
                check.refuse("choices", list(choices), f"numbers below {list(self.sizes)}")
        if len(choices) != len(self.sizes):
            check.refuse("choices", list(choices), f"{len(self.sizes)} numbers")
        return tuple(choices)

    def draw(self, source: random.Random) -> Choices:
        """A unit at random, among those that are allowed.

        Most choices make units of one or two operations. So that random search is no straw man, of
        five that were drawn, each option as probable as another, the one with most is taken.
        """
        drawn: list[tuple[int, Choices]] = []
        for _ in range(TRIES):
            choices = tuple(source.randrange(size) for size in self.sizes)
            unit = self.genotype(choices)
            if self.allows(unit):
                drawn.append((len(unit.operations), choices))
            if len(drawn) == DRAWN:
                return max(drawn)[1]
        check.refuse("space", self, "one with units that depend on input and past", "Widen it.")

    def mutate(self, choices: Choices, source: random.Random) -> Choices:
        """A neighbour: the unit with one decision made otherwise.

        What is no part of a unit is drawn anew first, so that a change may bring in more than a
        node that was there already.
        """
        before = self.genotype(choices)
        for _ in range(NEIGHBOURHOODS):
            base = [
                k if used else source.randrange(size)
                for k, used, size in zip(choices, self.used(choices), self.sizes, strict=True)
            ]
            changes = [(d, k) for d, size in enumerate(self.sizes) for k in range(size)]
            source.shuffle(changes)
            for d, k in changes:
                changed = (*base[:d], k, *base[d + 1 :])
                found = self.genotype(changed)
                if found != before and self.allows(found):
                    return changed
        check.refuse("space", self, "one in which a unit has neighbours", "Widen it.")

    def used(self, choices: Choices) -> tuple[bool, ...]:
        """Which decisions matter to the unit of these choices."""
        return (True,) * len(choices)

    def plain(self, choices: Choices) -> Choices:
        """The same unit, with the first option for all that is no part of it.

        In a mixture those nodes are still computed: none of them is to run off.
        """
        return tuple(k if used else 0 for k, used in zip(choices, self.used(choices), strict=True))

    def one_hot(self, choices: Choices) -> Tensor:
        """`mix` for these choices: 1 for the option taken, 0 for the others."""
        choices = self.plain(choices)
        rows = [torch.zeros(size) for size in self.sizes]
        for row, k in zip(rows, choices, strict=True):
            row[k] = 1.0
        return torch.cat(rows)

    def probabilities(self, alpha: Tensor) -> Tensor:
        """`mix` from logits: a softmax over the options of each decision; any leading dims."""
        return torch.cat([row.softmax(-1) for row in alpha.split(self.sizes, -1)], -1)

    def likeliest(self, mix: Tensor) -> Choices:
        return tuple(int(row.argmax()) for row in mix.split(self.sizes))


class Shares:
    """The shares of the options of each decision, as a mixture's step reads them."""

    def __init__(self, mix: Tensor, decisions: Sequence[Decision]) -> None:
        self.mix, self.places, start = mix, {}, 0
        for decision in decisions:
            self.places[decision.name] = (start, decision.options)
            start += len(decision.options)

    def of(self, name: str) -> dict[str, Tensor]:
        """{option: its share, [..., 1]}"""
        start, options = self.places[name]
        return {o: self.mix[..., start + k : start + k + 1] for k, o in enumerate(options)}

    def pick(self, name: str, values: Mapping[str, Tensor]) -> Tensor:
        """Σ share · value over the options, which are names of values."""
        return weighted((share, values[option]) for option, share in self.of(name).items())


def bounded(state: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The next state of a mixture, which must not run off."""
    return tuple(part.clamp(-BOUND, BOUND) for part in state)


def weighted(pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Σ share · value"""
    return added(share * value for share, value in pairs)


def added(values: Iterable[Tensor]) -> Tensor:
    """Σ value"""
    first, *others = values
    for each in others:
        first = first + each
    return first
