"""Learners whose network is written for each task from a description of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from metarnn.cells import check
from metarnn.hyper import Hypernetized, Join, SupportSet
from metarnn.meta.adapt import adapt
from metarnn.meta.careful import careful
from metarnn.meta.episode import Episode
from metarnn.meta.learners import Learner
from metarnn.meta.optimisers import optimiser

SUPPORT = "support"


class Generating(Learner):
    """θ_i = f_φ(τ_i), and with `steps` MAML from there: θ_i - lr ∇L(θ_i, support_i).

    hyper        what `hypernetize` made. Its descriptor is given `episode.about`, or the support if
                 it is a `SupportSet`; of a `Join`, the part called "support" is
    steps        updates from the generated weights on, in training and, by default, after it
    regularise   λ of λ·mean(θ_i²): generated weights stay small
    reconstruct  μ of an auxiliary loss: from θ_i a linear map has to tell τ_i again
    """

    def __init__(
        self,
        hyper: Hypernetized,
        criterion: str | Callable[[Tensor, Tensor], Tensor] = "mse",
        *,
        steps: int = 0,
        inner: str = "sgd",
        lr: float = 0.01,
        order: int = 2,
        test_steps: int | None = None,
        regularise: float = 0.0,
        reconstruct: float = 0.0,
        checkpoint: int = 0,
    ) -> None:
        super().__init__(criterion)
        self.hyper = hyper
        self.steps = check.size("steps", steps, least=0)
        self.test_steps = steps if test_steps is None else check.size("steps", test_steps, least=0)
        self.optimiser, self.order, self.checkpoint = optimiser(inner, lr), order, checkpoint
        self.regularise, self.reconstruct = regularise, reconstruct
        self.decoder = None
        if reconstruct:
            size = sum(shape.numel() for shape in hyper.shapes.values())
            self.decoder = nn.Linear(size, hyper.descriptor.width)

    def about(self, episode: Episode) -> Any:
        """What the descriptor is given."""
        descriptor = self.hyper.descriptor
        if isinstance(descriptor, SupportSet):
            return episode.support
        if isinstance(descriptor, Join) and SUPPORT in descriptor.parts:
            return {**(episode.about or {}), SUPPORT: episode.support}
        if episode.about is None:
            check.refuse("episode.about", None, f"what {type(descriptor).__name__} describes")
        return episode.about

    def forward(self, episode: Episode) -> Tensor:
        tau = self.hyper.descriptor(self.about(episode))
        generated = self.hyper.written(self.hyper.embed(tau))
        weights = generated
        if self.steps:
            weights = adapt(
                generated, self.loss, episode.support, self.steps, self.optimiser, self.order,
                tasks=True, own=True, checkpoint=self.checkpoint,
            )  # fmt: skip
        costs = self.costs(self.hyper.call(weights, episode.query_x), episode.query_y)
        rows = torch.cat([w.flatten(1) for w in generated.values()], 1)
        if self.regularise:
            costs = costs + self.regularise * rows.square().mean(1)
        if self.decoder is not None:
            told = self.decoder(F.layer_norm(rows, rows.shape[1:]))
            costs = costs + self.reconstruct * (told - tau.detach()).square().mean(1)
        return costs

    def adapted(self, episode: Episode, steps: int | None = None) -> dict[str, Tensor]:
        """The weights for each task, {name: [N, …]}."""
        steps = self.test_steps if steps is None else steps
        weights = self.hyper.weights(self.about(episode))
        if not steps:
            return weights
        return careful(weights, self.loss, episode.support, steps, self.optimiser, own=True)

    def predict(self, episode: Episode, steps: int | None = None) -> Tensor:
        return self.hyper.call(self.adapted(episode, steps), episode.query_x)

    def loss(self, weights: Any, examples: tuple[Tensor, Tensor]) -> Tensor:
        """Of one task."""
        x, y = examples
        return self.criterion(functional_call(self.hyper.module, weights, (x,)), y)
