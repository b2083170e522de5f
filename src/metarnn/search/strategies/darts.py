"""Differentiable architecture search (Liu, Simonyan, Yang 2019)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metarnn.search.bilevel import first_order, second_order
from metarnn.search.derive import perturbed, probable
from metarnn.search.space import Choices
from metarnn.search.strategies.base import Given
from metarnn.search.strategies.shared import Shared

ADAPT = 5  # updates of the weights after each decision of a perturbation-based selection


class Darts(Shared):
    """Shares are a softmax of logits α, which go down the gradient of the structure's loss.

    Of order 1 that gradient takes the weights as given, of order 2 it goes through their next
    update, see `bilevel`.
    """

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        rate, decay = given.options.alpha_lr, given.options.alpha_decay
        self.optimizer = torch.optim.Adam(
            [self.net.alpha], lr=rate, betas=(0.5, 0.999), weight_decay=decay
        )
        # For order 2, the batches that the trainer reads too.
        self.ahead = self.reads(given.problem.weights)

    def temperature(self) -> float:
        return self.options.temperature_at(self.done())

    def mixture(self) -> Tensor:
        return self.net.mixture(self.temperature())

    def shares(self) -> Tensor:
        """The shares that an update of α is made with, as something to differentiate."""
        return self.mixture()

    def learn(self) -> None:
        net, world = self.net, self.given.world
        mix = self.shares()
        # The shares are a leaf of their own: one pass back to them serves both terms.
        leaf = mix.detach().requires_grad_()
        net.use(leaf)
        if self.options.order == 1:
            gradient = first_order(self.objective(), leaf, world)
        else:
            gradient = second_order(
                self.ahead.read(self.trainer.model),
                self.objective(),
                list(self.trainer.parameters.values()),
                leaf,
                self.trainer.optimizer.param_groups[0]["lr"],
                self.options.hessian,
                world,
            )
        (gradient,) = torch.autograd.grad(mix, net.alpha, gradient)
        self.descend([net.alpha], [gradient])

    def sampled(self) -> Tensor | Choices:
        return self.mixture().detach()

    def finalists(self) -> list[Choices]:
        mix = self.mixture().detach()
        if self.options.selection == "perturbation":
            chosen = perturbed(
                self.space, mix, lambda m: self.score(m, 1), self.random, self._adapt
            )
            # With a rest of the shares, for where these choices make no unit that is of use.
            mix = 0.9 * chosen + 0.1 * mix
        return probable(self.space, mix, self.options.finalists, self.random)

    def _adapt(self, mix: Tensor) -> None:
        self.net.use(mix)
        for _ in range(ADAPT):
            self.trainer.update()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "ahead": self.ahead.parts.state_dict(self.given.world)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.ahead.parts.load_state_dict(state["ahead"], self.given.world.device)
