"""Strategies whose units all share the weights of one mixture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from metarnn.search import guards
from metarnn.search.derive import distinct
from metarnn.search.problem import Objective, Reader
from metarnn.search.space import Choices
from metarnn.search.strategies.base import Given, Strategy
from metarnn.search.supernet import Supernet
from metarnn.tasks.task import Task
from metarnn.training import Trainer, generators
from metarnn.training.position import Position

SCORED = 8  # batches that shared weights are scored on


class Shared(Strategy):
    """All units share the weights of one mixture; the trainer of any other model trains them."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        generators.seed_all(given.settings.seed)
        self.net = self.supernet()
        self.trainer = Trainer(
            given.problem.weights, self.net.model, given.settings, world=given.world
        )
        self.reader = self.reads(given.problem.structure)
        self.first_loss: float | None = None
        self.gradient_norm = 0.0
        self.optimizer: torch.optim.Optimizer | None = None

    def supernet(self) -> Supernet:
        """The model whose units are mixtures."""
        given = self.given
        model = given.problem.model(given.space.mixture, given.options.search_width)
        return Supernet(given.space, model.to(given.world.device), given.settings.seed)

    @property
    def at(self) -> Position:
        return self.trainer.at

    def step(self) -> None:
        if self.at.step >= self.options.alpha_warmup:
            self.learn()
        self.net.use(self.sampled())
        self.trainer.update()

    def learn(self) -> None:
        """One update of what is known of the structure."""

    def mixture(self) -> Tensor:
        """The shares as they are now."""
        return self.net.mixture()

    def sampled(self) -> Tensor | Choices:
        """The shares that the next update of the weights is made with."""
        raise NotImplementedError

    def undecided(self) -> Tensor:
        """What the net takes to compute with the shares as they are now."""
        return self.mixture().detach()

    def reads(self, task: Task) -> Reader:
        return Reader(task, self.trainer.parts.shards, self.given.settings.precision)

    def objective(self) -> Objective:
        """The loss of the next batch of the structure's data."""
        self.trainer.model.train()
        return self.reader.read(self.trainer.model)

    def descend(self, tensors: list[Tensor], gradients: list[Tensor]) -> None:
        assert self.optimizer is not None
        for tensor, gradient in zip(tensors, gradients, strict=True):
            tensor.grad = gradient
        self.gradient_norm = float(torch.stack([g.norm() for g in gradients]).norm())
        self.optimizer.step()

    def score(self, mix: Tensor | Choices, batches: int = SCORED) -> float:
        """The loss of the first batches of the structure's data with these shares."""
        self.net.use(mix)
        model = self.trainer.model.eval()
        reader = self.reads(self.given.problem.structure)
        losses = [reader.read(model).value(self.given.world) for _ in range(batches)]
        return sum(losses) / len(losses)

    def measure(self) -> dict[str, float]:
        mix = self.mixture().detach()
        mixed, derived = self.score(self.undecided()), self.score(self.space.likeliest(mix))
        self.first_loss = mixed if self.first_loss is None else self.first_loss
        guards.check_loss(self.first_loss, mixed)
        guards.check_mix(self.space, mix)
        shares = guards.masses(self.space, mix)
        return {
            "structure_loss": mixed,
            "gap": derived - mixed,
            "entropy": guards.entropy(self.space, mix),
            "alpha_gradient": self.gradient_norm,
            **{f"mass_{kind}": share for kind, share in shares.items()},
        }

    def scored(self, draw: Callable[[], Choices]) -> list[Choices]:
        """Of many drawn units, those that are best with the shared weights."""
        drawn = distinct(self.space, (draw() for _ in range(self.options.samples)))
        ranked = sorted(drawn, key=self.score)
        return ranked[: self.options.finalists]

    def state_dict(self) -> dict[str, Any]:
        memory = {} if self.optimizer is None else _memory(self.optimizer)
        return {
            **super().state_dict(),
            "alpha": self.net.alpha.detach(),
            "memory": memory,
            "first_loss": self.first_loss,
            "gradient_norm": self.gradient_norm,
            "reader": self.reader.parts.state_dict(self.given.world),
            "trainer": self.trainer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        with torch.no_grad():
            self.net.alpha.copy_(state["alpha"])
        if self.optimizer is not None:
            _remember(self.optimizer, state["memory"])
        self.first_loss, self.gradient_norm = state["first_loss"], state["gradient_norm"]
        self.reader.parts.load_state_dict(state["reader"], self.given.world.device)
        self.trainer.load_state_dict(state["trainer"])


def _memory(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    tensors = [t for group in optimizer.param_groups for t in group["params"]]
    return {str(k): dict(optimizer.state.get(t, {})) for k, t in enumerate(tensors)}


def _remember(optimizer: torch.optim.Optimizer, memory: dict[str, Any]) -> None:
    tensors = [t for group in optimizer.param_groups for t in group["params"]]
    for k, tensor in enumerate(tensors):
        if memory[str(k)]:
            optimizer.state[tensor] = {
                key: value.to(tensor.device, copy=True) if value.dim() else value.clone()
                for key, value in memory[str(k)].items()
            }
