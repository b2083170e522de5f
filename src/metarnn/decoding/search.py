"""Beam search, and its relatives, over any `Scorer`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.decoding.sampling import Sampler
from metarnn.decoding.scorer import Scorer
from metarnn.layers.nested import select

NEVER = -math.inf


@dataclass(frozen=True)
class Hypothesis:
    """A sequence that was found: its tokens without `eos`, log p(tokens, eos), and its score."""

    tokens: list[int]
    log_p: float
    score: float


@dataclass(frozen=True)
class Search:
    """The sequences that a model finds most probable, or sequences drawn from it.

    Every sentence has `width` places. At each step the most probable continuations of its
    hypotheses take the places that are left; one that ends with `eos` keeps its place, and when
    all have ended they are ranked by

        score(y) = log p(y) / |y|^length_penalty + coverage_penalty · coverage

    with `eos` counted in |y|. What is found depends, but for rounding, on no other sentence.

    >>> search = Search(width=5, nbest=3, length_penalty=1.0)

    width             1 is greedy: always the most probable token
    nbest             how many hypotheses to return, at most `width`
    length_penalty    0 ranks by probability, which favours the short; 1 by its mean over tokens
    coverage_penalty  on what the source has that was never attended to, see `Scorer`
    min_length        `eos` is not taken before so many tokens
    max_length        after so many tokens nothing but `eos` is
    no_repeat         no n tokens in a row come twice; 0 for no such rule
    groups            diverse beams: the places are shared by so many groups, one choosing after
                      the other, each paying `diversity` for every earlier choice of a token
    sampler           draw each sequence, `width` of them, instead of searching
    seed              of what is drawn
    """

    width: int = 1
    nbest: int = 1
    length_penalty: float = 0.0
    coverage_penalty: float = 0.0
    min_length: int = 0
    max_length: int = 200
    no_repeat: int = 0
    groups: int = 1
    diversity: float = 0.0
    sampler: Sampler | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("width", "nbest", "max_length", "groups"):
            check.size(name, getattr(self, name))
        for name in ("min_length", "no_repeat", "seed"):
            check.size(name, getattr(self, name), least=0)
        for name in ("length_penalty", "coverage_penalty", "diversity"):
            if check.number(name, getattr(self, name)) < 0:
                check.refuse(name, getattr(self, name), "at least 0")
        if self.nbest > self.width:
            check.refuse("nbest", self.nbest, f"at most the width of the search, {self.width}")
        if self.min_length > self.max_length:
            check.refuse("min_length", self.min_length, f"at most max_length={self.max_length}")
        if self.width % self.groups:
            check.refuse("groups", self.groups, f"a divisor of the width, {self.width}")
        if self.sampler is not None and self.groups > 1:
            check.refuse("groups", self.groups, "1 where sequences are drawn")

    @torch.no_grad()
    def __call__(
        self,
        scorer: Scorer,
        state: Any,
        start: Tensor,
        *,
        eos: int | None,
        never: Sequence[int] = (),
        prefixes: Sequence[Sequence[int]] | None = None,
        limits: Sequence[int] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, the best first.

        Args:
            scorer: the model
            state: of each sentence before its first token
            start: [B], what the model reads first
            eos: what ends a sequence; None where nothing does, and all have `max_length` tokens
            never: tokens that are not taken
            prefixes: tokens that each sentence's hypotheses begin with
            limits: a `max_length` for each sentence, where that is less
            numbers: of the sentences, 0, 1, … by default: from `seed + number` each one draws
        """
        B, K, device = len(start), self.width, start.device
        if self.coverage_penalty and not hasattr(scorer, "coverage"):
            check.refuse("coverage_penalty", self.coverage_penalty, "0: this model attends not")
        reorder = getattr(scorer, "reorder", select)
        rules = _Rules(self, B, eos, never, prefixes, limits)
        chances = [torch.Generator().manual_seed(self.seed + n) for n in numbers or range(B)]
        found: list[list[Hypothesis]] = [[] for _ in range(B)]

        sentences = torch.arange(B)  # those still in the batch
        state = select(state, sentences.repeat_interleave(K).to(device))
        tokens = start.repeat_interleave(K)
        history = tokens.new_empty(B * K, 0)
        # A group begins with one hypothesis; what is drawn, with one a place.
        per_group = K // self.groups
        total = torch.full((B, K), 0.0 if self.sampler else NEVER, device=device)
        total[:, ::per_group] = 0.0
        room = torch.full((B, self.groups), per_group, device=device)

        for t in range(int(rules.limits.max()) + (eos is not None)):
            log_p, state = scorer.step(tokens, state)
            log_p = rules.apply(log_p, history, t, sentences).view(*total.shape, -1)
            if self.sampler is None:
                places, tokens, total = self._best(total, log_p, room)
            else:
                places, tokens, total = self._drawn(self.sampler, total, log_p, chances)
            rows = (K * torch.arange(len(total), device=device).unsqueeze(1) + places).flatten()
            history = torch.cat([history[rows], tokens.view(-1, 1)], 1)

            ends = rules.ended(tokens, t, sentences) & (total > NEVER)
            if ends.any():
                ended = ends.flatten().nonzero().squeeze(1)
                coverage = torch.zeros_like(total.flatten())
                if self.coverage_penalty:
                    coverage = scorer.coverage(state)[rows]  # type: ignore[attr-defined]
                of = sentences.repeat_interleave(K)[ended.cpu()]
                spoken = history[ended] if eos is None else history[ended, :-1]
                values = (of, spoken, total.flatten()[ended], coverage[ended])
                for b, y, p, c in zip(*(v.tolist() for v in values), strict=True):
                    score = p / (t + 1) ** self.length_penalty + self.coverage_penalty * c
                    found[b].append(Hypothesis(y, p, score))
                total = total.masked_fill(ends, NEVER)
                room = room - ends.view(*room.shape, -1).sum(-1)

            going = (total > NEVER).any(1)
            kept = going.tolist()
            if not any(kept):
                break
            # Sentences that have ended leave when they are half of the batch, so that the model
            # meets few different batch sizes.
            if 2 * sum(kept) <= len(kept):
                stay = going.repeat_interleave(K)
                rows, history = rows[stay], history[stay]
                tokens, total, room = tokens[going], total[going], room[going]
                sentences = sentences[going.cpu()]
                chances = [chance for chance, keep in zip(chances, kept, strict=True) if keep]
                state = select(state, rows)
            elif self.sampler is None and K > 1:
                state = reorder(state, rows)
            tokens = tokens.flatten()
        for hypotheses in found:
            if not hypotheses:
                raise ValueError("no sequence has a probability: the model's are not numbers")
            hypotheses.sort(key=lambda h: -h.score)
        return [hypotheses[: self.nbest] for hypotheses in found]

    def _drawn(
        self, sampler: Sampler, total: Tensor, log_p: Tensor, chances: list[torch.Generator]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `_best`, but every place goes on by itself."""
        chance = [torch.rand(self.width, generator=c, dtype=torch.float64) for c in chances]
        tokens = sampler(log_p, torch.stack(chance))
        gained = log_p.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        places = torch.arange(self.width, device=total.device).expand_as(total)
        return places, tokens, total + gained

    def _best(self, total: Tensor, log_p: Tensor, room: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations: which place each comes from, its token and log p, [B, K].

        Of total [B, K] and log_p [B, K, V]; `room`, [B, groups], is how many each group may take.
        """
        B, K, V = log_p.shape
        n = K // self.groups
        candidates = (total.unsqueeze(-1) + log_p).view(B, self.groups, n * V)
        paid = log_p.new_zeros(B, V)
        found = []
        for g in range(self.groups):
            values = candidates[:, g]
            ranked = values - paid.repeat(1, n) if g else values
            best = ranked.topk(n).indices
            taken = torch.arange(n, device=total.device) < room[:, g : g + 1]
            gained = values.gather(1, best).masked_fill(~taken, NEVER)
            if self.groups > 1:
                count = (gained > NEVER).to(paid.dtype)
                paid.scatter_add_(1, best % V, self.diversity * count)
            found.append((best // V + g * n, best % V, gained))
        places, tokens, totals = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
        return places, tokens, totals


class _Rules:
    """What may follow: lengths, prefixes, repetitions, tokens that are never taken."""

    def __init__(
        self,
        search: Search,
        batch: int,
        eos: int | None,
        never: Sequence[int],
        prefixes: Sequence[Sequence[int]] | None,
        limits: Sequence[int] | None,
    ) -> None:
        self.search, self.eos, self.never = search, eos, list(never)
        self._mask: Tensor | None = None
        prefixes = prefixes if prefixes is not None else [[]] * batch
        self.limits = torch.full((batch,), search.max_length)
        if limits is not None:
            self.limits = self.limits.minimum(torch.as_tensor(limits).clamp(min=1))
        least = [max(search.min_length, len(prefix)) for prefix in prefixes]
        self.limits = self.limits.maximum(torch.tensor(least))
        # What each sentence must take at each step, -1 where it is free.
        self.must = torch.full((batch, int(self.limits.max()) + 1), -1)
        for row, prefix, limit in zip(self.must, prefixes, self.limits, strict=True):
            row[: len(prefix)] = torch.tensor(prefix, dtype=torch.long)
            if eos is not None:
                row[limit] = eos

    def apply(self, log_p: Tensor, history: Tensor, t: int, sentences: Tensor) -> Tensor:
        """log_p [N, V] with -inf for what may not follow."""
        search, device, V = self.search, log_p.device, log_p.shape[1]
        if self._mask is None:
            self._mask = torch.zeros(V, dtype=torch.bool)
            self._mask[self.never] = True
            self._mask = self._mask.to(device)
        never = self._mask
        blocked = never.expand_as(log_p)
        too_short = self.eos is not None and t < search.min_length
        if search.no_repeat or too_short:
            blocked = blocked | repeats(history, search.no_repeat, V)
            if self.eos is not None:
                blocked[:, self.eos] = too_short
            # A hypothesis that these two rules leave no token at all may break them.
            blocked = torch.where(blocked.all(1, keepdim=True), never, blocked)
        must = self.must[sentences, t]
        if (must >= 0).any():
            must = must.repeat_interleave(search.width).unsqueeze(1).to(device)
            others = torch.arange(V, device=device) != must
            blocked = torch.where(must >= 0, others, blocked)
        return log_p.masked_fill(blocked, NEVER)

    def ended(self, tokens: Tensor, t: int, sentences: Tensor) -> Tensor:
        """Which of the tokens, [B, K], are the last of a hypothesis."""
        if self.eos is not None:
            return tokens == self.eos
        return (self.limits[sentences] == t + 1).unsqueeze(1).to(tokens.device).expand_as(tokens)


def repeats(history: Tensor, n: int, size: int) -> Tensor:
    """Which tokens would make the last n of a history, [N, t], come again: [N, size].

    >>> repeats(torch.tensor([[1, 2, 3, 1, 2]]), 3, 5).nonzero().tolist()
    [[0, 3]]
    """
    blocked = torch.zeros(len(history), size, dtype=torch.bool, device=history.device)
    if not 0 < n <= history.shape[1]:
        return blocked
    grams = history.unfold(1, n, 1)  # [N, t - n + 1, n]
    again = (grams[..., :-1] == history[:, history.shape[1] - n + 1 :].unsqueeze(1)).all(-1)
    row, place = again.nonzero(as_tuple=True)
    blocked[row, grams[row, place, -1]] = True
    return blocked
