"""Attention: what of the source a decoder looks at."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from metarnn.cells import check

KINDS = ("additive", "dot", "multihead")


class Memory(NamedTuple):
    """What is looked at, S places of B sequences; all of it computed once a sentence.

    keys    [S, B, k], compared with queries
    values  [S, B, v], of which the context is a mean
    mask    [S, B], true where there is a token
    tokens  [S, B], the source's tokens as the target's vocabulary numbers them, for copying
    """

    keys: Tensor
    values: Tensor
    mask: Tensor
    tokens: Tensor


class Attention(nn.Module):
    """c_t = Σ_s a_ts v_s,  a_t = softmax_s(e_ts)

    >>> attention = Attention(8, 16, "multihead", heads=4)
    >>> states, mask, tokens = torch.randn(5, 2, 16), torch.ones(5, 2).bool(), torch.zeros(5, 2)
    >>> memory = attention.look(states, mask, tokens.long())
    >>> context, a = attention(torch.randn(3, 2, 8), memory)
    >>> context.shape, a.shape
    (torch.Size([3, 2, 16]), torch.Size([3, 2, 5]))

    kind      "additive": e_ts = w·tanh(W q_t + U m_s) (Bahdanau et al. 2015); "dot":
              e_ts = W q_t · U m_s / √k (Luong et al. 2015); "multihead": that for each of several
              heads, each with values of its own (Vaswani et al. 2017)
    coverage  e_ts + γ Σ_{t' < t} a_t's: what was looked at is looked at less, or again. Steps then
              wait for one another, here alone.
    """

    def __init__(
        self, query: int, memory: int, kind: str, *, heads: int = 1, coverage: bool = False
    ) -> None:
        super().__init__()
        self.kind = check.one_of("attention", kind, KINDS)
        self.heads = check.size("heads", heads) if kind == "multihead" else 1
        if memory % self.heads:
            check.refuse("heads", heads, f"a divisor of the encoder's width, {memory}")
        self.query = nn.Linear(query, memory, bias=kind == "additive")
        self.key = nn.Linear(memory, memory, bias=False)
        self.score = nn.Parameter(torch.empty(memory)) if kind == "additive" else None
        self.value = nn.Linear(memory, memory) if kind == "multihead" else nn.Identity()
        self.output = nn.Linear(memory, memory) if kind == "multihead" else nn.Identity()
        self.gamma = nn.Parameter(torch.zeros(self.heads)) if coverage else None
        if self.score is not None:
            nn.init.normal_(self.score, std=1 / math.sqrt(memory))

    def look(self, states: Tensor, mask: Tensor, tokens: Tensor) -> Memory:
        """What an encoder found, [S, B, m], made ready to be looked at."""
        return Memory(self.key(states), self.value(states), mask, tokens)

    def forward(
        self, query: Tensor, memory: Memory, covered: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Queries [T, B, q] -> contexts [T, B, m] and weights [T, B, S], the mean over heads.

        covered  [S, B], the weights that all earlier steps gave together
        """
        e = self._scores(self.query(query), memory.keys)  # [T, B, heads, S]
        e = e.masked_fill(~memory.mask.T.unsqueeze(1), -torch.inf)
        a = e.softmax(-1) if self.gamma is None else self._one_by_one(e, covered)
        values = memory.values.unflatten(-1, (self.heads, -1))
        context = torch.einsum("tbhs,sbhv->tbhv", a.to(values.dtype), values).flatten(2)
        return self.output(context), a.mean(2)

    def _scores(self, query: Tensor, keys: Tensor) -> Tensor:
        if self.score is not None:
            together = torch.tanh(query.unsqueeze(2) + keys.transpose(0, 1))  # [T, B, S, k]
            return (together @ self.score.to(together.dtype)).unsqueeze(2)
        query, keys = (x.unflatten(-1, (self.heads, -1)) for x in (query, keys))
        return torch.einsum("tbhk,sbhk->tbhs", query, keys) / math.sqrt(query.shape[-1])

    def _one_by_one(self, e: Tensor, covered: Tensor | None) -> Tensor:
        assert self.gamma is not None
        seen = e.new_zeros(e.shape[1], e.shape[3]) if covered is None else covered.T
        weights = []
        for scores in e:  # [B, heads, S]
            a = (scores + self.gamma.unsqueeze(-1) * seen.unsqueeze(1)).softmax(-1)
            seen = seen + a.mean(1)
            weights.append(a)
        return torch.stack(weights)
