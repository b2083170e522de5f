"""Backpropagation through time, whole or with what lies between checkpoints computed again."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.gradients.nested import detached, map_tensors, tensors
from metarnn.gradients.rule import Gradients, Rule, add, comes_in_pieces, derivative, take, trained
from metarnn.gradients.segment import Adjoint, segment


class BPTT(Rule):
    """Backpropagation through the whole chunk: exact for its steps, nothing reaches past its start.

        ∂L/∂θ = Σ_t Σ_{k≤t} ∂L_t/∂s_t · ∂s_t/∂s_k · ∂⁺s_k/∂θ

    Args:
        checkpoint_every: with k > 0 only the states at every k-th step are kept on the way forward,
            and each stretch is run again, by whatever engine its layers choose, when its gradient
            is due: memory for T/k states and k steps, at the price of one more forward pass. -1
            takes k = √T, on a GPU 4 √T

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

    def examine(self, model: nn.Module) -> None:
        if self.checkpoint_every:
            comes_in_pieces(model, self.split, "BPTT with checkpoints")

    def step(self, model: nn.Module, chunk: Any, carried: Any = None) -> Gradients:
        self.examine(model)
        if self.checkpoint_every:
            return self._frugal(model, chunk, carried)
        notes: list[Any] = []
        parameters = trained(model)
        value, state = take(self.loss(model, chunk, carried), notes)
        found = derivative([value], list(parameters.values()), [None])
        named = {n: g for n, g in zip(parameters, found, strict=True) if g is not None}
        return Gradients(value.detach(), named, detached(state), notes)

    def _frugal(self, model: nn.Module, chunk: Any, state: Any) -> Gradients:
        parameters, notes = trained(model), []
        every = self.checkpoint_every
        if every < 0:
            every = math.isqrt(max((len(t) for t in tensors(chunk)), default=1) - 1) + 1
            # Each stretch costs launches: at T = 16,384 and H = 64 on an H200 stretches of √T took
            # 4.5 times as long as plain BPTT, those of 4 √T 1.2 times.
            every *= 4 if _devices(parameters) else 1
        total: Tensor | None = None
        stretches = self.split(chunk, every)
        states, chance = _Shelf(len(stretches)), _Shelf(len(stretches))
        with torch.no_grad():
            for k, stretch in enumerate(stretches):
                chance.put(k, _random(parameters))
                value, after = take(self.loss(model, stretch, states.get(k - 1, state)), notes)
                states.put(k, after)
                total = value if total is None else total + value
        named: dict[str, Tensor] = {}
        adjoint: Adjoint = []
        with torch.random.fork_rng(_devices(parameters)):
            for k in reversed(range(len(stretches))):
                _restore(chance.get(k), parameters)
                before = states.get(k - 1, state)
                link = segment(self.loss, model, stretches[k], before, [])
                grads, adjoint = link.pull(parameters, adjoint)
                add(named, grads)
        assert total is not None
        return Gradients(total, named, states.get(len(stretches) - 1), notes)


class _Shelf:
    """Nested tensors of the same shapes in one piece of memory, given at once.

    Each by itself would lie between what is allocated and freed for the stretches, whose memory
    could then not be used again: at T = 16,384 that came to ten times as much as is needed.
    """

    def __init__(self, count: int) -> None:
        self.count, self.places = count, None

    def put(self, number: int, nested: Any) -> None:
        if self.places is None:
            self.places = map_tensors(lambda t: t.new_empty(self.count, *t.shape), nested)
        map_tensors(lambda place, t: place[number].copy_(t), self.places, nested)

    def get(self, number: int, first: Any = None) -> Any:
        """A copy of what was put there; before number 0 lies `first`."""
        # A copy: torch.set_rng_state reads past a tensor that begins within its memory.
        return first if number < 0 else map_tensors(lambda p: p[number].clone(), self.places)


def _devices(parameters: dict[str, Tensor]) -> list[torch.device]:
    return list({w.device for w in parameters.values() if w.is_cuda})


def _random(parameters: dict[str, Tensor]) -> list[Tensor]:
    """Where chance stands, so that what was dropped is dropped again."""
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, _devices(parameters))]


def _restore(random: list[Tensor], parameters: dict[str, Tensor]) -> None:
    torch.set_rng_state(random[0])
    for device, state in zip(_devices(parameters), random[1:], strict=True):
        torch.cuda.set_rng_state(state, device)
