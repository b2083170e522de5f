"""What goes wrong in a search, noticed while it does."""

from __future__ import annotations

import math

from torch import Tensor

from metarnn.search.space import Space

COLLAPSED = 0.8  # mean share of `identity` where it is an option
DECIDED = 0.05  # of the greatest entropy: below it nothing is left to be decided
BLOWN_UP = 2.0  # times the first loss


class SearchStopped(ArithmeticError):
    """A search that goes nowhere, and what to do about it."""


def entropy(space: Space, mix: Tensor) -> float:
    """The mean entropy of the decisions, as a share of the greatest possible."""
    rows = [row for row in mix.detach().double().split(space.sizes) if len(row) > 1]
    shares = [float(-(row * row.clamp(min=1e-12).log()).sum()) / math.log(len(row)) for row in rows]
    return sum(shares) / len(shares)


def masses(space: Space, mix: Tensor) -> dict[str, float]:
    """The mean share of each operation and activation, over the decisions where it is an option.

    >>> from metarnn.search import DartsSpace
    >>> space = DartsSpace(nodes=1)
    >>> masses(space, space.one_hot((1,)))
    {'tanh': 0.0, 'relu': 1.0, 'sigmoid': 0.0, 'identity': 0.0}
    """
    found: dict[str, list[float]] = {}
    for decision, row in zip(space.decisions, mix.detach().split(space.sizes), strict=True):
        if not decision.operation:
            continue
        own: dict[str, float] = {}
        for option, share in zip(decision.options, row.tolist(), strict=True):
            kind = option.split()[0]
            own[kind] = own.get(kind, 0.0) + share
        for kind, share in own.items():
            found.setdefault(kind, []).append(share)
    return {kind: sum(shares) / len(shares) for kind, shares in found.items()}


def check_mix(space: Space, mix: Tensor) -> None:
    """Stop a search whose mixture has become the identity, or a unit that learns nothing."""
    if masses(space, mix).get("identity", 0.0) > COLLAPSED:
        raise SearchStopped(
            "the mixture collapsed to identity: it copies what it is given. Try a lower "
            "--alpha-lr, more --alpha-decay, a later start of the structure (--alpha-warmup), or a "
            "space without identity (--activations)."
        )
    if entropy(space, mix) < DECIDED and not space.genotype(space.likeliest(mix)).useful:
        raise SearchStopped(
            "the structure settles for a unit that depends on no input, or on no past. Try a later "
            "start of the structure (--alpha-warmup), a lower --alpha-lr, or another --seed."
        )


def check_loss(first: float, now: float) -> None:
    """Stop a search whose mixture has blown up."""
    if not math.isfinite(now) or now > BLOWN_UP * abs(first) + 1:
        raise SearchStopped(
            f"the mixture blew up: its loss on the structure's data went from {first:.3g} to "
            f"{now:.3g}. Try a lower --lr or --clip, or a space without relu and identity "
            "(--activations sigmoid tanh), whose values have no bounds."
        )
