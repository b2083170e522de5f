"""Learners: what is trained on episodes. A learner is a module; called, it gives its training loss.

Here are those that adapt by gradients: MAML and its kin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from metarnn.cells import check
from metarnn.hyper.hypernetize import BATCH_NORM
from metarnn.meta.adapt import adapt, objective
from metarnn.meta.careful import careful
from metarnn.meta.episode import Episode
from metarnn.meta.exact import exact
from metarnn.meta.implicit import implicit
from metarnn.meta.optimisers import Optimiser, optimiser


def mse(prediction: Tensor, y: Tensor) -> Tensor:
    return (prediction - y).square().mean()


def cross_entropy(prediction: Tensor, y: Tensor) -> Tensor:
    """Of scores [..., classes] and classes [...], in nats."""
    return F.cross_entropy(prediction.flatten(0, -2), y.flatten())


CRITERIA: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": mse,
    "cross_entropy": cross_entropy,
}


class Learner(nn.Module):
    """criterion  "mse" or "cross_entropy", or a function (prediction, y) -> a number"""

    def __init__(self, criterion: str | Callable[[Tensor, Tensor], Tensor] = "mse") -> None:
        super().__init__()
        if isinstance(criterion, str):
            criterion = CRITERIA[check.one_of("criterion", criterion, CRITERIA)]
        self.criterion = criterion

    def forward(self, episode: Episode) -> Tensor:
        """What training makes small, one number a task, [N]."""
        return self.costs(self.predict(episode), episode.query_y)

    def predict(self, episode: Episode, steps: int | None = None) -> Tensor:
        """Predictions for the queries, [N, Q, …]; their y is not looked at.

        `steps` is for learners that take steps: how many, by default as many as were trained.
        """
        raise NotImplementedError

    def costs(self, prediction: Tensor, y: Tensor) -> Tensor:
        """The criterion for each task, [N]."""
        return vmap(self.criterion)(prediction, y)

    @property
    def transductive(self) -> bool:
        """Whether a prediction depends on the other queries: by a norm over the batch."""
        norms = (m for m in self.modules() if isinstance(m, BATCH_NORM))
        return any(norm.training or not norm.track_running_stats for norm in norms)


class Adapting(Learner):
    """Learning to adapt: network weights from which a few steps on the support lead far.

    min_θ Σ_i L_i(adapt(θ, support_i), query_i)

    order=2 is MAML (Finn et al. 2017), order=1 first-order MAML; names="head.*" is ANIL (Raghu et
    al. 2020); learn_rates=True is Meta-SGD (Li et al. 2017), one rate a weight.

    network      any module from x, [K, …], to predictions
    steps        updates on the support, in training
    inner        "sgd", "momentum", "adam", or an optimiser
    lr           its rate, or what learned rates start from
    test_steps   updates for predictions, by default as many
    checkpoint   see `adapt`
    """

    def __init__(
        self,
        network: nn.Module,
        criterion: str | Callable[[Tensor, Tensor], Tensor] = "mse",
        *,
        steps: int = 1,
        inner: str | Callable[..., Optimiser] = "sgd",
        lr: float = 0.01,
        order: int = 2,
        names: str | Sequence[str] = "*",
        learn_rates: bool = False,
        test_steps: int | None = None,
        checkpoint: int = 0,
    ) -> None:
        super().__init__(criterion)
        self.network = network
        self.steps = check.size("steps", steps, least=0)
        self.test_steps = steps if test_steps is None else check.size("steps", test_steps, least=0)
        self.inner, self.lr, self.order = inner, check.number("lr", lr), order
        self.names, self.checkpoint = names, checkpoint
        self.rates = None
        if learn_rates:
            # One tensor for each weight, in their order: names with dots cannot be attributes.
            self.rates = nn.ParameterList(torch.full_like(w, lr) for w in network.parameters())

    @property
    def weights(self) -> dict[str, Tensor]:
        return dict(self.network.named_parameters())

    @property
    def optimiser(self) -> Optimiser:
        lr: Any = self.lr
        if self.rates is not None:
            lr = dict(zip(self.weights, self.rates, strict=True))
        return optimiser(self.inner, lr) if isinstance(self.inner, str) else self.inner(lr)

    def loss(self, weights: Any, examples: tuple[Tensor, Tensor]) -> Tensor:
        """Of one task."""
        x, y = examples
        return self.criterion(functional_call(self.network, weights, (x,)), y)

    def adapted(self, episode: Episode, steps: int | None = None) -> dict[str, Tensor]:
        """The weights for each task, {name: [N, …]}: `careful` ones, not to be differentiated."""
        steps = self.test_steps if steps is None else steps
        return careful(
            self.weights, self.loss, episode.support, steps, self.optimiser, names=self.names
        )

    def forward(self, episode: Episode) -> Tensor:
        return objective(
            self.weights,
            self.loss,
            episode.support,
            episode.query,
            self.steps,
            self.optimiser,
            self.order,
            names=self.names,
            checkpoint=self.checkpoint,
        )

    def predict(self, episode: Episode, steps: int | None = None) -> Tensor:
        return self.call(self.adapted(episode, steps), episode.query_x)

    def call(self, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        """The network on x, [N, Q, …], with weights {name: [N, …]}."""
        with exact():
            return vmap(
                lambda w, x: functional_call(self.network, w, (x,)), randomness="different"
            )(weights, x)


class Joint(Adapting):
    """The baseline: one network for all tasks together, fine-tuned only when tested.

    It learns from the examples of support and query alike. See `fine_tuning` for a fair test.
    """

    def forward(self, episode: Episode) -> Tensor:
        x, y = _whole(episode)
        prediction = self.network(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        return self.costs(prediction, y)


class Reptile(Adapting):
    """θ ← θ - ε (θ - θ_i), where θ_i are the weights after the steps (Nichol et al. 2018).

    The loss is ½ ‖θ - θ_i‖² with θ_i held fixed, so that any optimiser can be used outside; support
    and query are one set here.
    """

    def forward(self, episode: Episode) -> Tensor:
        found = adapt(
            self.weights, self.loss, _whole(episode), self.steps, self.optimiser, 0,
            names=self.names, tasks=True,
        )  # fmt: skip
        apart = [(w - found[n]).square().flatten(1).sum(1) for n, w in self.weights.items()]
        return torch.stack(apart).sum(0) / 2


class Implicit(Adapting):
    """iMAML (Rajeswaran et al. 2019): adapted weights stay near θ, and gradients are implicit."""

    def __init__(self, *arguments: Any, strength: float = 1.0, iterations: int = 5, **options: Any):
        super().__init__(*arguments, **options)
        self.strength, self.iterations = strength, iterations

    def adapted(self, episode: Episode, steps: int | None = None) -> dict[str, Tensor]:
        return implicit(
            self.weights,
            self.loss,
            episode.support,
            self.test_steps if steps is None else steps,
            self.optimiser,
            strength=self.strength,
            iterations=self.iterations,
        )

    def forward(self, episode: Episode) -> Tensor:
        prediction = self.call(self.adapted(episode, self.steps), episode.query_x)
        return self.costs(prediction, episode.query_y)


def _whole(episode: Episode) -> tuple[Tensor, Tensor]:
    """Support and query as one set of examples, [N, K + Q, …]."""
    x = torch.cat([episode.x, episode.query_x], 1)
    return x, torch.cat([episode.y, episode.query_y], 1)
