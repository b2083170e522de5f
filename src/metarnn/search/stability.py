"""Whether the state of a unit can run off, told from its structure alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch

from metarnn.search.genotype import Genotype, Operation


@dataclass(frozen=True)
class Bound:
    """|v| ≤ h·|h| + c·|c| + rest, for old states h and c, whatever the weights.

    A factor of inf: none that holds for all weights. A rest of inf: one that depends on weights
    and inputs, but not on time. `gate` tells that 0 ≤ v ≤ 1.
    """

    h: float = 0.0
    c: float = 0.0
    rest: float = 0.0
    gate: bool = False

    @property
    def free(self) -> bool:
        """Whether it holds however large the states are."""
        return self.h == self.c == 0

    def times(self, factor: float) -> Bound:
        h, c, rest = (0.0 if each == 0 else each * factor for each in (self.h, self.c, self.rest))
        return Bound(h, c, rest)

    def __add__(self, other: Bound) -> Bound:
        return Bound(self.h + other.h, self.c + other.c, self.rest + other.rest)

    def __mul__(self, other: Bound) -> Bound:
        if self.gate and other.gate:
            return self
        for one, two in ((self, other), (other, self)):
            if one.free:
                return two.times(one.rest)
        return Bound(inf, inf, inf)


def is_bounded(genotype: Genotype) -> bool:
    """Whether no weights make the state grow exponentially, on inputs without bounds of their own.

    >>> from metarnn.search import known
    >>> [is_bounded(unit) for unit in (known.LSTM, known.GRU, known.ELMAN, known.MIN_GRU)]
    [True, True, True, True]
    >>> is_bounded(Genotype.parse("h' = relu(lin(x, h))"))
    False

    With |next states| ≤ M·|old states| + rest, M must have no eigenvalue above 1: an LSTM's c,
    which may count up, is allowed.
    """
    bounds = bounds_of(genotype)
    rows = [[bounds[f"{s}'"].h, bounds[f"{s}'"].c] for s in genotype.states]
    if any(inf in row for row in rows):
        return False
    matrix = torch.tensor([row[: len(rows)] for row in rows], dtype=torch.float64)
    return bool(torch.linalg.eigvals(matrix).abs().max() <= 1 + 1e-9)


def is_neat(genotype: Genotype) -> bool:
    """Whether no operation is wasted, and what blends is between 0 and 1.

    Not neat are sum(a, a), prod(a, a), blend(z, a, a), an activation of what has one already or of
    a `lin`, which could have it itself, and blend(z, a, b) where z is no gate or one of a and b.
    """
    bounds = bounds_of(genotype)
    made = {each.name: each for each in genotype.operations}
    for each in genotype.operations:
        if each.op != "lin" and len(set(each.args)) < len(each.args):
            return False
        if each.op == "blend" and not bounds[each.args[0]].gate:
            return False
        if each.op == "act" and each.name != "c'":
            inner = made.get(each.args[0])
            if inner is not None and (inner.op in ("lin", "act")):
                return False
    return True


def bounds_of(genotype: Genotype) -> dict[str, Bound]:
    """What can be said of the size of every value."""
    bounds = {"x": Bound(rest=inf), "h": Bound(h=1.0), "c": Bound(c=1.0)}
    for each in genotype.operations:
        bounds[each.name] = _bound(each, [bounds[arg] for arg in each.args])
    return bounds


def _bound(each: Operation, args: Sequence[Bound]) -> Bound:
    if each.act in ("sigmoid", "tanh"):
        return Bound(rest=1.0, gate=each.act == "sigmoid")
    if each.op == "lin":
        return _sum([arg.times(inf) for arg in args] + [Bound(rest=inf)])
    if each.op == "act":
        return args[0] + Bound(rest=1.0) if each.act == "softplus" else args[0]
    if each.op == "prod":
        return args[0] * args[1]
    if each.op == "blend":
        z, a, b = args
        if z.gate:  # between a and b
            gate = a.gate and b.gate
            return Bound(max(a.h, b.h), max(a.c, b.c), max(a.rest, b.rest), gate)
        return z * a + b + z * b
    return _sum(args).times(1 / len(args) if each.op == "mean" else 1.0)


def _sum(bounds: Sequence[Bound]) -> Bound:
    total = Bound()
    for bound in bounds:
        total = total + bound
    return total
