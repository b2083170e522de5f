"""Search by differentiable sampling (Dong & Yang 2019)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metarnn.search.derive import NOTHING_LIKELY
from metarnn.search.guards import SearchStopped
from metarnn.search.space import TRIES, Choices
from metarnn.search.strategies.base import Given
from metarnn.search.strategies.darts import Darts


class Gdas(Darts):
    """One unit at a time: one option a decision, drawn by the shares.

    p = softmax((α + g) / τ), g Gumbel noise; forward the one-hot of its greatest, backward p.
    """

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self.noise = torch.Generator().manual_seed(given.settings.seed)

    def mixture(self) -> Tensor:
        return self.net.mixture()

    def shares(self) -> Tensor:
        alpha, space = self.net.alpha, self.space
        temperature = self.temperature()
        for _ in range(TRIES):
            uniform = torch.rand(len(alpha), generator=self.noise).clamp(1e-9, 1 - 1e-7)
            gumbel = -(-uniform.log()).log()
            soft = space.probabilities((alpha + gumbel.to(alpha.device)) / temperature)
            choices = space.likeliest(soft)
            if space.allows(space.genotype(choices)):
                hard = space.one_hot(choices).to(soft)
                return hard + soft - soft.detach()
        raise SearchStopped(NOTHING_LIKELY)

    def sampled(self) -> Tensor | Choices:
        return self.shares().detach()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "noise": self.noise.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.noise.set_state(state["noise"])
