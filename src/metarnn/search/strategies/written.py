"""Differentiable search in which a network writes the structure anew at every step."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from metarnn.hyper.watch import watch
from metarnn.search.derive import probable
from metarnn.search.space import Choices
from metarnn.search.strategies.base import Given
from metarnn.search.strategies.shared import Shared
from metarnn.search.undecided import Undecided, WrittenNet


class Written(Shared):
    """As darts of order 1, with logits α + what a network makes of the inputs up to each step.

    Network and α go down the gradient of the structure's loss. The unit is derived from the shares
    as they are on average over the structure's data.
    """

    net: WrittenNet

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        rate, decay = given.options.alpha_lr, given.options.alpha_decay
        learned = [self.net.alpha, *self.net.writers]
        self.optimizer = torch.optim.Adam(learned, lr=rate, betas=(0.5, 0.999), weight_decay=decay)

    def supernet(self) -> WrittenNet:
        given = self.given
        unit = partial(Undecided, space=given.space)
        model = given.problem.model(unit, given.options.search_width)
        return WrittenNet(given.space, model.to(given.world.device), given.settings.seed)

    def step(self) -> None:
        self.net.temperature = self.options.temperature_at(self.done())
        super().step()

    def learn(self) -> None:
        self.net.use(self.net.alpha)
        with self.net.writing() as learned:
            gradients = self.objective().gradients(learned, self.given.world)
        self.descend(learned, gradients)

    def sampled(self) -> Tensor:
        return self.net.alpha.detach()

    def undecided(self) -> Tensor:
        return self.sampled()

    def mixture(self) -> Tensor:
        """The mean shares over the first batches of the structure's data."""
        with watch() as records:
            self.score(self.sampled())
        total, count = self.net.shares(records)
        *sums, everyones = self.given.world.sum([*total.tolist(), count])
        return torch.tensor(sums).to(total) / everyones

    def finalists(self) -> list[Choices]:
        return probable(self.space, self.mixture(), self.options.finalists, self.random)
