"""Backpropagation through time, whole or with what lies between checkpoints computed again."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.gradients.nested import detached, tensors
from metarnn.gradients.rule import Gradients, Rule, add, derivative, one_direction, take, trained
from metarnn.gradients.segment import Adjoint, segment


class BPTT(Rule):
    """Backpropagation through the whole chunk: exact for its steps, nothing reaches past its start.

        ∂L/∂θ = Σ_t Σ_{k≤t} ∂L_t/∂s_t · ∂s_t/∂s_k · ∂⁺s_k/∂θ

    Args:
        checkpoint_every: with k > 0 only the states at every k-th step are kept on the way forward,
            and each stretch is run again, by whatever engine its layers choose, when its gradient
            is due: memory for T/k states and k steps, at the price of one more forward pass. -1
            takes k = √T

    >>> class Model(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = metarnn.RNN(3, 4)
    ...     def forward(self, x, state):
    ...         y, state = self.layer(x, state)
    ...         return y.square().sum(), state
    >>> model, x = Model(), torch.randn(50, 2, 3)
    >>> plain, frugal = BPTT().step(model, x), BPTT(checkpoint_every=-1).step(model, x)
    >>> all(torch.allclose(plain.named[name], frugal.named[name]) for name in plain.named)
    True
    """

    def __init__(self, checkpoint_every: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.checkpoint_every = check.size("checkpoint_every", checkpoint_every, least=-1)

    def step(self, model: nn.Module, chunk: Any, carried: Any = None) -> Gradients:
        if self.checkpoint_every:
            return self._frugal(model, chunk, carried)
        notes: list[Any] = []
        parameters = trained(model)
        value, state = take(self.loss(model, chunk, carried), notes)
        found = derivative([value], list(parameters.values()), [None])
        named = {n: g for n, g in zip(parameters, found, strict=True) if g is not None}
        return Gradients(value.detach(), named, detached(state), notes)

    def _frugal(self, model: nn.Module, chunk: Any, state: Any) -> Gradients:
        one_direction(model, "BPTT with checkpoints")
        every = self.checkpoint_every
        if every < 0:
            every = math.isqrt(max((len(t) for t in tensors(chunk)), default=1) - 1) + 1
        parameters, notes = trained(model), []
        total: Tensor | None = None
        kept = []
        with torch.no_grad():
            for stretch in self.split(chunk, every):
                kept.append((stretch, state, _random(parameters)))
                value, state = take(self.loss(model, stretch, state), notes)
                total = value if total is None else total + value
        named: dict[str, Tensor] = {}
        adjoint: Adjoint = []
        with torch.random.fork_rng(_devices(parameters)):
            for stretch, before, random in reversed(kept):
                _restore(random, parameters)
                link = segment(self.loss, model, stretch, before, [])
                grads, adjoint = link.pull(parameters, adjoint)
                add(named, grads)
        assert total is not None
        return Gradients(total, named, detached(state), notes)


def _devices(parameters: dict[str, Tensor]) -> list[torch.device]:
    return list({w.device for w in parameters.values() if w.is_cuda})


def _random(parameters: dict[str, Tensor]) -> list[Tensor]:
    """Where chance stands, so that what was dropped is dropped again."""
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, _devices(parameters))]


def _restore(random: list[Tensor], parameters: dict[str, Tensor]) -> None:
    torch.set_rng_state(random[0])
    for device, state in zip(_devices(parameters), random[1:], strict=True):
        torch.cuda.set_rng_state(state, device)
