"""Gradients that are cut after some steps back, at fixed places or at random ones."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.gradients.nested import detached
from metarnn.gradients.rule import Gradients, Rule, add, trained
from metarnn.gradients.segment import Adjoint, Segment, live, segment


class TBPTT(Rule):
    """Truncated backpropagation (Williams & Peng 1990): every k1 steps, k2 steps back.

    At every k1-th step the losses of the last k1 steps are followed at most k2 steps back from
    there; with k1 = 1 each loss reaches back exactly k2 steps, its own included. Nothing passes
    the start of a chunk. Memory for k2 steps; k2/k1 backward passes.

    Bias: whatever lies further back. Variance: none.
    """

    def __init__(self, k1: int, k2: int, **options: Any) -> None:
        super().__init__(**options)
        self.k1, self.k2 = check.size("k1", k1), check.size("k2", k2)
        if k2 < k1:
            check.refuse("k2", k2, f"at least k1={k1}: else some losses would reach no weight")

    def step(self, model: nn.Module, chunk: Any, carried: Any = None) -> Gradients:
        self.examine(model)
        parameters, notes, named = trained(model), [], {}
        unit = math.gcd(self.k1, self.k2)
        stretches = self.split(chunk, unit)
        window: deque[Segment] = deque(maxlen=self.k2 // unit)
        state, values, new = carried, [], 0
        for number, stretch in enumerate(stretches, 1):
            window.append(segment(self.loss, model, stretch, state, notes))
            state, new = window[-1].state, new + 1
            values.append(window[-1].value.detach())
            if number % (self.k1 // unit) and number < len(stretches):
                continue
            adjoint: Adjoint = []
            for lag, link in enumerate(reversed(window)):
                if lag >= new and not live(adjoint):
                    break
                grads, adjoint = link.pull(parameters, adjoint, value=lag < new, keep=True)
                add(named, grads)
            new = 0
        return Gradients(torch.stack(values).sum(), named, detached(state), notes)


class SampledTBPTT(Rule):
    """Truncation at a random length, unbiased: the sampled-length form.

    The loss of each stretch is followed K stretches back, K drawn anew each time, and what it finds
    at lag i is weighted by 1/P(K ≥ i). Here K is geometric, P(K ≥ i) = πⁱ, with a mean of `length`
    steps back.

    Bias: none. Variance: grows with the lag as π⁻ⁱ against how the gradient itself falls. Time:
    `length`/`every` backward passes. Memory: the chunk.

    Args:
        length: how far back gradients go on average, in steps
        every: steps of a stretch: within one, nothing is cut
    """

    def __init__(self, length: float, every: int = 1, **options: Any) -> None:
        super().__init__(**options)
        self.length, self.every = _mean("length", length), check.size("every", every)
        self.keep = self.length / (self.length + self.every)  # π: the mean of K is π / (1 - π)

    def step(self, model: nn.Module, chunk: Any, carried: Any = None) -> Gradients:
        parameters, notes, links = _run(self, model, chunk, carried)
        named: dict[str, Tensor] = {}
        for last, link in enumerate(links):
            grads, adjoint = link.pull(parameters, None, keep=True)
            add(named, grads)
            for before in reversed(links[:last]):
                if not live(adjoint) or torch.rand(()) >= self.keep:
                    break
                adjoint = [None if a is None else a / self.keep for a in adjoint]
                grads, adjoint = before.pull(parameters, adjoint, value=False, keep=True)
                add(named, grads)
        return _gradients(links, named, notes)


class _Weighted(Rule):
    """One backward pass, in which what crosses from a stretch into the one before gets a factor."""

    def __init__(self, every: int = 1, **options: Any) -> None:
        super().__init__(**options)
        self.every = check.size("every", every)

    @abstractmethod
    def factors(self, count: int, batch: int) -> Tensor:
        """The factor at each border between two stretches, [count, B], of expectation 1."""

    def step(self, model: nn.Module, chunk: Any, carried: Any = None) -> Gradients:
        parameters, notes, links = _run(self, model, chunk, carried)
        named: dict[str, Tensor] = {}
        batch = next((tensor.shape[1] for tensor in links[0].after), 1)
        factors = self.factors(len(links) - 1, batch)
        adjoint: Adjoint = []
        for k in reversed(range(len(links))):
            grads, adjoint = links[k].pull(parameters, adjoint)
            add(named, grads)
            if k:
                adjoint = [_times(each, factors[k - 1]) for each in adjoint]
        return _gradients(links, named, notes)


class RandomTBPTT(_Weighted):
    """Randomised truncation, unbiased: a factor ξ_t on the recurrent gradient of every step.

        ξ_t = 1/π with probability π, else 0, so E[ξ_t] = 1

    Drawn for each sequence on its own. Bias: none. Variance: of a path over k steps π⁻ᵏ - 1. Time
    and memory: those of BPTT.

    Args:
        keep: π
        every: steps from one factor to the next
    """

    def __init__(self, keep: float = 0.9, every: int = 1, **options: Any) -> None:
        super().__init__(every, **options)
        self.keep = check.probability("keep", keep)
        if not keep:
            check.refuse("keep", keep, "a probability above 0: without any, use TBPTT")

    def factors(self, count: int, batch: int) -> Tensor:
        return (torch.rand(count, batch) < self.keep) / self.keep


class ARTBP(_Weighted):
    """Anticipated reweighted truncation (Tallec & Ollivier 2017), unbiased.

    Going forward, the d-th step after a cut is one with the probability

        c(d) = α / ((α - 1) L + d)

    so that the lengths between cuts have the mean L and a tail of d^-α; what crosses a border that
    is no cut is multiplied by 1/(1 - c). Cuts get rarer as they are longer ago, so that, other than
    with a constant probability, the factors along a path grow slower than exponentially.

    Args:
        length: L, the mean length, in stretches
        alpha: α > 1, how thin the tail is
        every: steps of a stretch
    """

    def __init__(
        self, length: float = 50.0, alpha: float = 4.0, every: int = 1, **options: Any
    ) -> None:
        super().__init__(every, **options)
        self.length, self.alpha = _mean("length", length), alpha
        if check.number("alpha", alpha) <= 1:
            check.refuse("alpha", alpha, "a number above 1")
        if self.cut(torch.zeros(())) >= 1:
            check.refuse("length", length, f"more than α/(α-1) = {alpha / (alpha - 1):.3g}")

    def cut(self, since: Tensor) -> Tensor:
        return self.alpha / ((self.alpha - 1) * self.length + since)

    def factors(self, count: int, batch: int) -> Tensor:
        since, found = torch.zeros(batch), []
        for _ in range(count):
            c = self.cut(since)
            stays = torch.rand(batch) >= c
            found.append(stays / (1 - c))
            since = torch.where(stays, since + 1, 0)
        return torch.stack(found) if found else torch.zeros(0, batch)


def _run(
    rule: Any, model: nn.Module, chunk: Any, state: Any
) -> tuple[dict[str, Tensor], list[Any], list[Segment]]:
    rule.examine(model)
    notes: list[Any] = []
    links: list[Segment] = []
    for stretch in rule.split(chunk, rule.every):
        links.append(segment(rule.loss, model, stretch, state, notes))
        state = links[-1].state
    return trained(model), notes, links


def _gradients(links: list[Segment], named: dict[str, Tensor], notes: list[Any]) -> Gradients:
    value = torch.stack([link.value.detach() for link in links]).sum()
    return Gradients(value, named, detached(links[-1].state), notes)


def _times(adjoint: Tensor | None, factors: Tensor) -> Tensor | None:
    """An adjoint [n, B, ...] with a factor for each sequence."""
    if adjoint is None:
        return None
    return adjoint * factors.to(adjoint).view(1, -1, *[1] * (adjoint.dim() - 2))


def _mean(name: str, value: float) -> float:
    if check.number(name, value) <= 0:
        check.refuse(name, value, "a number of steps above 0")
    return float(value)
