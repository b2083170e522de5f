"""Tokens drawn from what a model thinks of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.decoding.scorer import Scorer


@dataclass(frozen=True)
class Sampler:
    """Draws tokens: a function of log-probabilities and of uniform chance, and of nothing else.

    >>> sampler = Sampler(top_k=2)
    >>> sampler(torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([0.7]))
    tensor([1])

    temperature  log-probabilities are divided by it; 0 takes the most probable token (greedy)
    top_k        draw from the k most probable tokens alone; 0 for all
    top_p        draw from the fewest tokens that have this much probability together
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if check.number("temperature", self.temperature) < 0:
            check.refuse("temperature", self.temperature, "at least 0")
        check.size("top_k", self.top_k, least=0)
        if not check.probability("top_p", self.top_p):
            check.refuse("top_p", self.top_p, "above 0")

    def __call__(self, log_p: Tensor, chance: Tensor) -> Tensor:
        """Log-probabilities [..., V] and numbers in [0, 1), [...] -> tokens [...]."""
        if self.temperature == 0:
            return log_p.argmax(-1)
        # In double on the CPU, so that a seed means the same everywhere.
        p = (log_p.double().cpu() / self.temperature).softmax(-1)
        if self.top_k and self.top_k < p.shape[-1]:
            p = torch.where(p < p.topk(self.top_k).values[..., -1:], 0.0, p)
        if self.top_p < 1:
            ranked, order = p.sort(dim=-1, descending=True, stable=True)
            ranked = ranked / ranked.sum(-1, keepdim=True)
            # A token stays as long as those before it do not have that much already.
            beyond = ranked.cumsum(-1) - ranked >= self.top_p
            p = p.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), 0.0)
        # Divided by its end the sum ends with exactly 1, above any chance.
        below = p.cumsum(-1)
        below = below / below[..., -1:]
        drawn = torch.searchsorted(below, chance.double().cpu().unsqueeze(-1), right=True)
        return drawn.squeeze(-1).to(log_p.device)


def stream(
    scorer: Scorer,
    token: Tensor,
    state: Any,
    sampler: Sampler,
    generator: torch.Generator,
    length: int | None = None,
    never: Sequence[int] = (),
) -> Iterator[int]:
    """Tokens drawn one after the other, in constant memory, after a first `token`, [1].

    length  how many; None for no end
    never   tokens that are not drawn
    """
    drawn = 0
    while length is None or drawn < length:
        with torch.no_grad():
            log_p, state = scorer.step(token, state)
            log_p[:, list(never)] = -torch.inf
            chance = torch.rand(1, generator=generator, dtype=torch.float64)
            token = sampler(log_p, chance)
        yield int(token)
        drawn += 1
