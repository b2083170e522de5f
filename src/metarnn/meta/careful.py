"""Adaptation that never ends worse on the support than it began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.utils import _pytree as pytree

from metarnn.meta.adapt import Loss, choose, count_tasks
from metarnn.meta.optimisers import SGD, Optimiser, Params


def careful(
    params: Params,
    loss: Loss,
    support: Any,
    steps: int = 1,
    optimiser: Optimiser = SGD(),  # noqa: B008  it is frozen
    *,
    names: str | Sequence[str] = "*",
    own: bool = False,
) -> dict[str, Tensor]:
    """As `adapt` with order=0 and tasks=True, but a step that leaves the loss on the support above
    what it was before the first one is not made, and from then on that task's steps are half as
    long.

    Weights that were trained to be good after one step may diverge in ten: of MAML's on sinusoids
    one task in a thousand does, and then the mean over tasks says nothing any more.
    """
    count = count_tasks(support, params if own else {})
    adapting, rest = choose(params, names)

    def one(w: dict[str, Tensor], rest: dict[str, Tensor], support: Any) -> dict[str, Tensor]:
        def cost(w: Params) -> Tensor:
            return loss({**rest, **w}, support)

        limit = cost(w)
        state, share = optimiser.begin(w), torch.ones_like(limit)
        for _ in range(steps):
            moved, after = optimiser.step(w, grad(cost)(w), state)
            trial = {n: w[n] + share * (moved[n] - w[n]) for n in w}
            good = cost(trial) <= limit  # false for NaN
            w, state = (
                pytree.tree_map(lambda new, old, good=good: torch.where(good, new, old), new, old)
                for new, old in ((trial, w), (after, state))
            )
            share = torch.where(good, share, share / 2)
        return w

    with torch.no_grad():
        axis = 0 if own else None
        found = vmap(one, (axis, axis, 0), randomness="different")(adapting, rest, support)
        if not own:
            found |= {n: w.expand(count, *w.shape) for n, w in rest.items()}
    return {name: found[name] for name in params}
