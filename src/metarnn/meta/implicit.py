"""Implicit gradients (iMAML, Rajeswaran et al. 2019): for inner loops of any length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from metarnn.cells import check
from metarnn.meta.adapt import Loss, adapt, count_tasks
from metarnn.meta.exact import exact
from metarnn.meta.optimisers import SGD, Optimiser, Params


def implicit(
    params: Params,
    loss: Loss,
    support: Any,
    steps: int = 16,
    optimiser: Optimiser = SGD(),  # noqa: B008  it is frozen
    *,
    strength: float = 1.0,
    iterations: int = 5,
    own: bool = False,
) -> dict[str, Tensor]:
    """w*(θ) = argmin_w L(w, support) + strength/2·‖w - θ‖² for every task, by `steps` updates.

    ∂w*/∂θ = (I + H / strength)⁻¹, where H is the Hessian of L at w*: the backward pass solves with
    it by so many `iterations` of conjugate gradients. No step of the inner loop is kept. The
    gradient is right where the inner loop has converged, and as good as that elsewhere.

    The arguments are those of `adapt` with `tasks=True`. All weights adapt.
    """
    if check.number("strength", strength) <= 0:
        check.refuse("strength", strength, "a number above 0")
    check.size("iterations", iterations)
    count = count_tasks(support, params if own else {})
    theta = dict(params) if own else {n: w.expand(count, *w.shape) for n, w in params.items()}

    def near(w: Params, given: Any) -> Tensor:
        support, start = given
        apart = torch.stack([(w[n] - start[n]).square().sum() for n in w]).sum()
        return loss(w, support) + strength / 2 * apart

    fixed = {n: w.detach() for n, w in theta.items()}
    found = adapt(fixed, near, (support, fixed), steps, optimiser, 0, tasks=True, own=True)

    def curved(v: dict[str, Tensor]) -> dict[str, Tensor]:
        """(I + H / strength) v, for every task."""

        def one(w: dict[str, Tensor], v: dict[str, Tensor], support: Any) -> dict[str, Tensor]:
            def along(w: dict[str, Tensor]) -> Tensor:
                slope = grad(lambda w: loss(w, support))(w)
                return torch.stack([(slope[n] * v[n]).sum() for n in v]).sum()

            hv = grad(along)(w)
            return {n: v[n] + hv[n] / strength for n in v}

        with exact():
            return vmap(one, randomness="same")(found, v, support)

    names = list(theta)
    solved = _Implicit.apply(
        lambda v: solve(curved, v, iterations), names, found, *[theta[n] for n in names]
    )
    assert isinstance(solved, tuple)
    return dict(zip(names, solved, strict=True))


class _Implicit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inverse: Any, names: list[str], found: Any, *theta: Tensor) -> Any:
        ctx.inverse, ctx.names = inverse, names
        return tuple(found[n].clone() for n in names)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        solved = ctx.inverse(dict(zip(ctx.names, gradients, strict=True)))
        return (None, None, None, *(solved[n] for n in ctx.names))


def solve(
    apply: Callable[[dict[str, Tensor]], dict[str, Tensor]], b: dict[str, Tensor], iterations: int
) -> dict[str, Tensor]:
    """x with apply(x) = b by conjugate gradients, for every task (leading dimension) apart.

    For a quadratic form that is positive definite; a task that is solved stays as it is.
    """
    x = {n: torch.zeros_like(v) for n, v in b.items()}
    r, p = dict(b), dict(b)
    rr = _dot(r, r)
    for _ in range(iterations):
        ap = apply(p)
        pap = _dot(p, ap)
        going = (rr > 0) & (pap > 0)
        a = torch.where(going, rr / torch.where(going, pap, 1), 0)
        x = {n: x[n] + _along(a, p[n]) * p[n] for n in x}
        r = {n: r[n] - _along(a, p[n]) * ap[n] for n in r}
        new = _dot(r, r)
        share = torch.where(going, new / torch.where(going, rr, 1), 0)
        p = {n: r[n] + _along(share, p[n]) * p[n] for n in p}
        rr = new
    return x


def _dot(a: dict[str, Tensor], b: dict[str, Tensor]) -> Tensor:
    return torch.stack([(a[n] * b[n]).flatten(1).sum(1) for n in a]).sum(0)


def _along(a: Tensor, like: Tensor) -> Tensor:
    """a, [N], to multiply something of shape [N, …] with."""
    return a.view(-1, *[1] * (like.dim() - 1))
