"""The gradient of a loss on held-out data with respect to the structure, through the weights.

min_α L_s(w*(α), α),  w*(α) = argmin_w L_w(w, α),  taken as one step: w' = w - ξ ∇_w L_w(w, α)

∇_α L_s(w', α) - ξ ∇²_{αw} L_w(w, α) v,  v = ∇_{w'} L_s(w', α)        (Liu et al. 2019)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.search.problem import Objective
from metarnn.training.world import World

HESSIANS = ("exact", "difference")
ALONE = World()


def first_order(structure: Objective, alpha: Tensor, world: World = ALONE) -> Tensor:
    """∇_α L_s(w, α): as if the weights did not depend on the structure."""
    return structure.gradients([alpha], world)[0]


def second_order(
    weights_loss: Objective,
    structure_loss: Objective,
    weights: Sequence[Tensor],
    alpha: Tensor,
    rate: float,
    hessian: str = "exact",
    world: World = ALONE,
) -> Tensor:
    """∇_α L_s(w - ξ ∇_w L_w(w, α), α), exactly, or with the product ∇²_{αw} L_w v by differences.

    The weights are as before afterwards, to the bit.

    Args:
        rate: ξ
        hessian: "exact" differentiates ∇_w L_w · v once more; "difference" takes
            (∇_α L_w(w + εv) - ∇_α L_w(w - εv)) / 2ε with ε = 0.01/‖v‖, as DARTS does
    """
    check.one_of("hessian", hessian, HESSIANS)
    weights = list(weights)
    own = [w.detach().clone() for w in weights]
    try:
        _shift(weights, own, weights_loss.gradients(weights, world), -rate)
        direct, *v = structure_loss.gradients([alpha, *weights], world)
        if hessian == "exact":
            _put(weights, own)
            (product,) = weights_loss.gradients([alpha], world, along=v, weights=weights)
        else:
            epsilon = 0.01 / float(torch.stack([each.norm() for each in v]).norm())
            sides = []
            for sign in (1, -1):
                _shift(weights, own, v, sign * epsilon)
                sides.append(weights_loss.gradients([alpha], world)[0])
            product = (sides[0] - sides[1]) / (2 * epsilon)
    finally:
        _put(weights, own)
    return direct - rate * product


@torch.no_grad()
def _shift(weights: list[Tensor], own: list[Tensor], along: list[Tensor], by: float) -> None:
    for w, start, direction in zip(weights, own, along, strict=True):
        w.copy_(start + by * direction)


@torch.no_grad()
def _put(weights: list[Tensor], own: list[Tensor]) -> None:
    for w, value in zip(weights, own, strict=True):
        w.copy_(value)
