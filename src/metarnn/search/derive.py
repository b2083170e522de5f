"""From shares to a unit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from metarnn.search.canonical import canonical
from metarnn.search.guards import SearchStopped
from metarnn.search.space import Choices, Space

NOTHING_LIKELY = (
    "no unit that the shares make likely is of any use: it depends on no input or no past, or it "
    "may run off. Try a later start of the structure (--alpha-warmup), a lower --alpha-lr, or "
    "another --seed."
)
DRAWS = 256  # units drawn by their shares, for each that is wanted


def distinct(space: Space, found: Iterable[Choices]) -> list[Choices]:
    """Without those that make a unit which was there before."""
    seen, kept = set(), []
    for choices in found:
        form = canonical(space.genotype(choices))
        if form not in seen:
            seen.add(form)
            kept.append(choices)
    return kept


def probable(space: Space, mix: Tensor, count: int, source: random.Random) -> list[Choices]:
    """The likeliest units, Π of the shares of their choices, among those that are allowed.

    First comes the one that takes the greatest share at every decision, if it is allowed; the
    others are the likeliest of many that were drawn.
    """
    rows = [row.tolist() for row in mix.detach().double().split(space.sizes)]
    drawn = [space.likeliest(mix)]
    for _ in range(DRAWS * count):
        drawn.append(tuple(source.choices(range(len(row)), row)[0] for row in rows))
    units = [each for each in dict.fromkeys(drawn) if space.allows(space.genotype(each))]
    if not units:
        raise SearchStopped(NOTHING_LIKELY)

    def likelihood(choices: Choices) -> float:
        logs = mix.detach().double().clamp(min=1e-12).log().split(space.sizes)
        return float(sum(row[k] for row, k in zip(logs, choices, strict=True)))

    ranked = sorted(units, key=likelihood, reverse=True)
    return distinct(space, ranked)[:count]


def perturbed(
    space: Space,
    mix: Tensor,
    loss: Callable[[Tensor], float],
    source: random.Random,
    after: Callable[[Tensor], None] = lambda mix: None,
) -> Tensor:
    """Decide by what each option is worth to the mixture, not by its share (Wang et al. 2021).

    One decision after the other, in random order: the option is taken without which the loss is
    greatest. A share may be large because an option is harmless; its loss tells what it does.

    Args:
        loss: of the mixture with these shares
        after: called after each decision with the shares, to let the weights adapt

    Returns:
        shares of 0 and 1, but where leaving an option out made no difference: there as before
    """
    mix = mix.detach().clone()
    order = list(range(len(space.sizes)))
    source.shuffle(order)
    starts = [sum(space.sizes[:k]) for k in range(len(space.sizes))]
    for k in order:
        size, start = space.sizes[k], starts[k]
        if size == 1:
            continue
        worth = []
        for option in range(size):
            without = mix.clone()
            row = without[start : start + size]
            row[option] = 0
            row /= row.sum().clamp(min=1e-12)
            worth.append(loss(without))
        row = mix[start : start + size]
        chosen = int(torch.tensor(worth).argmax()) if len(set(worth)) > 1 else int(row.argmax())
        row.zero_()
        row[chosen] = 1.0
        after(mix)
    return mix
