"""ENAS: a controller learns to draw good units (Pham et al. 2018)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from metarnn.search import guards
from metarnn.search.space import TRIES, Choices, Space
from metarnn.search.strategies.base import Given
from metarnn.search.strategies.shared import Shared
from metarnn.training import checkpoint

WIDTH = 32
SOFTENED = (5.0, 2.5)  # logits are tanh-bounded, 2.5 tanh(logits / 5), as in the paper


class Controller(nn.Module):
    """An LSTM that makes one decision after the other, each knowing those before."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.sizes = space.sizes
        self.start = nn.Parameter(torch.zeros(1, WIDTH))
        self.cell = nn.LSTMCell(WIDTH, WIDTH)
        self.heads = nn.ModuleList([nn.Linear(WIDTH, size) for size in space.sizes])
        self.embeddings = nn.ModuleList([nn.Embedding(size, WIDTH) for size in space.sizes])

    def forward(self, noise: torch.Generator) -> tuple[Choices, Tensor, Tensor]:
        """A unit drawn, the log of its probability, and the entropy of the decisions on its way."""
        x, state, chosen = self.start, None, []
        log, entropy = x.new_zeros(()), x.new_zeros(())
        for head, embedding in zip(self.heads, self.embeddings, strict=True):
            state = self.cell(x, state)
            divisor, factor = SOFTENED
            row = (factor * torch.tanh(head(state[0]) / divisor)).log_softmax(-1)[0]
            k = int(torch.multinomial(row.detach().exp(), 1, generator=noise))
            log, entropy = log + row[k], entropy - (row.exp() * row).sum()
            chosen.append(k)
            x = embedding(torch.tensor([k]))
        return tuple(chosen), log, entropy


class Enas(Shared):
    """REINFORCE: ∇ (R - b) log p(unit), R = -loss on the structure's data, b a running mean.

    Units that depend on no input or no past are drawn again, and learned from no more than that.
    """

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        torch.manual_seed(given.settings.seed)
        # On the CPU: its decisions are tiny, and have to be known there.
        self.controller = Controller(given.space)
        self.noise = torch.Generator().manual_seed(given.settings.seed)
        self.optimizer = torch.optim.Adam(self.controller.parameters(), lr=given.options.alpha_lr)
        self.baseline: float | None = None
        self.reward = self.entropy = 0.0

    def draw(self) -> tuple[Choices, Tensor, Tensor]:
        for _ in range(TRIES):
            choices, log, entropy = self.controller(self.noise)
            if self.space.allows(self.space.genotype(choices)):
                return choices, log, entropy
        raise guards.SearchStopped(
            "the controller draws no unit that depends on input and past. Try a lower --alpha-lr, "
            "a larger --entropy-bonus, or another --seed."
        )

    def learn(self) -> None:
        choices, log, entropy = self.draw()
        self.net.use(choices)
        self.reward = -self.objective().value(self.given.world)
        self.entropy = float(entropy.detach())
        before = self.reward if self.baseline is None else self.baseline
        self.baseline = 0.95 * before + 0.05 * self.reward
        loss = -(self.reward - before) * log - self.options.entropy_bonus * entropy
        parameters: list[Tensor] = list(self.controller.parameters())
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        gradients = [
            torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)
        ]
        self.descend(parameters, gradients)

    def sampled(self) -> Choices:
        with torch.no_grad():
            return self.draw()[0]

    def measure(self) -> dict[str, float]:
        loss = self.score(self.sampled())
        self.first_loss = loss if self.first_loss is None else self.first_loss
        return {
            "structure_loss": loss,
            "reward": self.reward,
            "entropy": self.entropy,
            "alpha_gradient": self.gradient_norm,
        }

    def finalists(self) -> list[Choices]:
        return self.scored(self.sampled)

    def state_dict(self) -> dict[str, Any]:
        own = {"reward": self.reward, "entropy": self.entropy, "baseline": self.baseline}
        return {
            **super().state_dict(),
            **own,
            "controller": checkpoint.weights(self.controller),
            "noise": self.noise.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        checkpoint.load_weights(self.controller, state["controller"])
        self.noise.set_state(state["noise"])
        self.reward, self.entropy = state["reward"], state["entropy"]
        self.baseline = state["baseline"]
