"""Adaptation: from weights and a few examples of a task to weights for that task.

Everything is a pure function of dicts of tensors, built on `torch.func`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.utils import _pytree as pytree

from metarnn.cells import check
from metarnn.meta.exact import exact
from metarnn.meta.optimisers import SGD, Optimiser, Params
from metarnn.meta.recompute import recomputed

Loss: TypeAlias = Callable[[Params, Any], Tensor]


def adapt(
    params: Params,
    loss: Loss,
    support: Any,
    steps: int = 1,
    optimiser: Optimiser = SGD(),  # noqa: B008  it is frozen
    order: int = 2,
    *,
    names: str | Sequence[str] = "*",
    tasks: bool = False,
    own: bool = False,
    checkpoint: int = 0,
) -> dict[str, Tensor]:
    """θ_k = step(θ_{k-1}, ∇L(θ_{k-1}, support)), `steps` times from θ_0 = params.

    >>> line = {"slope": torch.tensor(0.0, requires_grad=True)}
    >>> loss = lambda w, xy: (w["slope"] * xy[0] - xy[1]).square().mean()
    >>> support = (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0]))
    >>> adapt(line, loss, support, steps=20, optimiser=SGD(0.1))
    {'slope': tensor(3.0000, grad_fn=<SubBackward0>)}

    Args:
        params: the weights to begin with, by name
        loss: (params, support) -> a number, for one task
        support: what is known of the task: tensors, in tuples and dicts
        steps: how many updates
        optimiser: `SGD` or `Adam`; its rates may be tensors that are learned
        order: how the result depends on params. 2: as it does (MAML); 1: as if the gradients were
            constants (first-order MAML); 0: not at all (Reptile, fine-tuning)
        names: which weights adapt, as patterns; the others are the same before and after (ANIL)
        tasks: many tasks at once: every tensor of the support has a leading dimension N, and so
            has every result
        own: with `tasks`, that params have it too: generated weights, one set a task
        checkpoint: keep only the weights after every so many steps, and compute what lies between
            again in the backward pass; about √steps needs least memory. 0: keep all
    """
    adapting, rest = choose(params, names)
    check.size("steps", steps, least=0)
    check.size("checkpoint", checkpoint, least=0)
    if order not in (0, 1, 2):
        check.refuse("order", order, "0, 1 or 2")
    if own and not tasks:
        check.refuse("own", own, "False without tasks=True")
    count = count_tasks(support, params if own else {}) if tasks else 0
    if order == 0:
        adapting, rest, optimiser = _detached((adapting, rest, optimiser))
    batched: int | None = 0 if own else None
    state: Any = None
    left = steps
    while left:
        size = min(checkpoint or left, left)

        def run(w: Any, s: Any, rest: Any, lr: Any, support: Any, size: int = size) -> Any:
            rule = replace(optimiser, lr=lr)  # pyright: ignore[reportArgumentType]
            return _steps(w, s, rest, support, loss, size, rule, order)

        if tasks:
            axes = (batched, None if state is None else 0, 0 if own else None, None, 0)
            run = vmap(run, axes, randomness="different")
        lr = dict(optimiser.lr) if isinstance(optimiser.lr, Mapping) else optimiser.lr
        whole = (adapting, state, rest, lr, support)
        again = checkpoint and order and torch.is_grad_enabled()
        adapting, state = recomputed(run, whole) if again else run(*whole)
        batched, left = 0, left - size
    if order == 0:
        adapting = _detached(adapting)
    found = {**rest, **adapting}
    if tasks and not own:
        for name in rest if steps else params:
            found[name] = found[name].expand(count, *found[name].shape)
    return {name: found[name] for name in params}


def objective(
    params: Params,
    loss: Loss,
    support: Any,
    query: Any,
    steps: int = 1,
    optimiser: Optimiser = SGD(),  # noqa: B008
    order: int = 2,
    *,
    query_loss: Loss | None = None,
    **options: Any,
) -> Tensor:
    """The bi-level objective L(adapt(θ, support), query), one number a task, [N].

    What is minimised is its mean. The arguments are those of `adapt` for many tasks;
    `query_loss` is for another loss on the query than on the support.
    """
    adapted = adapt(params, loss, support, steps, optimiser, order, tasks=True, **options)
    with exact():
        return vmap(query_loss or loss, randomness="different")(adapted, query)


def _steps(
    w: dict[str, Tensor],
    state: Any,
    rest: Params,
    support: Any,
    loss: Loss,
    count: int,
    optimiser: Optimiser,
    order: int,
) -> tuple[dict[str, Tensor], Any]:
    """Some steps for one task."""
    state = optimiser.begin(w) if state is None else state
    for _ in range(count):
        at, beside = (w, rest) if order == 2 else _detached((w, rest))

        def cost(w: Params, beside: Params = beside) -> Tensor:
            value = loss({**beside, **w}, support)
            if value.dim():
                shape = tuple(value.shape)
                check.refuse("loss", f"a tensor of shape {shape}", "one number for a task")
            return value

        if order == 2:
            with exact():
                gradients = grad(cost)(at)
        else:
            gradients = _detached(grad(cost)(at))
        w, state = optimiser.step(w, gradients, state)
    return w, state


def choose(
    params: Params, names: str | Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The params that match a pattern, and the others."""
    patterns = [names] if isinstance(names, str) else list(names)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in params):
            check.refuse("names", pattern, f"a pattern of some of {list(params)}")
    found = {n: w for n, w in params.items() if any(fnmatchcase(n, p) for p in patterns)}
    if not found:
        check.refuse("names", names, "at least one pattern")
    return found, {n: w for n, w in params.items() if n not in found}


def count_tasks(support: Any, own: Params) -> int:
    """How many tasks there are: the leading dimension that all tensors have."""
    tensors = [t for t in pytree.tree_leaves((support, dict(own))) if isinstance(t, Tensor)]
    sizes = {t.shape[0] if t.dim() else 0 for t in tensors}
    if len(sizes) != 1 or 0 in sizes:
        shapes = [tuple(t.shape) for t in tensors]
        check.refuse("support", shapes, "tensors with one leading dimension: as many as tasks")
    return sizes.pop()


def _detached(tree: Any) -> Any:
    """The same values, of which no gradient is known."""
    if hasattr(tree, "begin"):  # an optimiser
        lr = tree.lr if not isinstance(tree.lr, Mapping) else dict(tree.lr)
        return replace(tree, lr=_detached(lr))
    if isinstance(tree, tuple):
        return tuple(_detached(part) for part in tree)
    return pytree.tree_map(lambda t: t.detach() if isinstance(t, Tensor) else t, tree)
