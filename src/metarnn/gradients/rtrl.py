"""Gradients that are carried forward in time: nothing of the past is kept but its influence."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from metarnn.cells import check
from metarnn.gradients.influence import Influence
from metarnn.gradients.linearize import Linearization
from metarnn.gradients.nested import detached
from metarnn.gradients.rule import Gradients, Rule, add
from metarnn.layers.nested import map_tensors

MEMORY = 1 << 28  # bytes that the derivatives of a stretch may take


class Forward(Rule):
    """What rules that go forward in time share.

    For each stretch, the loss by the parameters within it comes from a backward pass over the
    stretch alone; what lies before it comes from the influence J of the parameters on the state s
    that the stretch began with:

        ∂L/∂θ = ∂⁺L/∂θ + δ J,   δ = ∂L/∂s,   J = ds/dθ

    So the current stretch is exact in every rule, and rules differ in what they know of J. Memory
    and time of a step do not depend on how many there were.
    """

    def stretch(self, model: nn.Module, chunk: Any, state: Any) -> int:
        """How many steps to take at once."""
        return 1

    def step(self, model: nn.Module, chunk: Any, carried: Any = None) -> Gradients:
        self.examine(model)
        state, J = (None, None) if carried is None else carried
        # The order of numbers in memory is that of sums: the same as before a checkpoint.
        J = None if J is None else map_tensors(lambda t: _swap(t).contiguous(), J)
        named: dict[str, Tensor] = {}
        notes: list[Any] = []
        values = []
        for stretch in self.split(chunk, self.stretch(model, chunk, state)):
            lin = self.linearize(model, stretch, state)
            notes += lin.notes
            values.append(lin.value.detach())
            grads, δ = lin.gradients()
            add(named, grads)
            if J is not None and δ is not None:
                add(named, self.reached(model, stretch, lin, δ, J))
            J = self.advance(model, stretch, state, lin, J)
            state = detached(lin.after)
        value = torch.stack(values).sum()
        return Gradients(value, named, (state, map_tensors(_swap, J)), notes)

    def linearize(self, model: nn.Module, stretch: Any, state: Any) -> Linearization:
        """Run a stretch."""
        return Linearization(self.loss, model, stretch, state)

    @abstractmethod
    def reached(
        self, model: nn.Module, stretch: Any, lin: Linearization, δ: Tensor, J: Any
    ) -> dict[str, Tensor]:
        """δ J, by name."""

    @abstractmethod
    def advance(
        self, model: nn.Module, stretch: Any, state: Any, lin: Linearization, J: Any
    ) -> Any:
        """The influence after a stretch, from that before it (None at the start)."""


class RTRL(Forward):
    """Real-time recurrent learning (Williams & Zipser 1989): exact, for any cell and stack.

        J_t = D_t J_{t-1} + ∂⁺s_t/∂θ,   D_t = ∂s_t/∂s_{t-1}

    Equal to BPTT over all steps since the start. Time O(S² P) a stretch and memory O(S P), with S
    numbers of state and P parameters; where the recurrence is elementwise (one layer of QRNN, SRU,
    MinGRU, MinLSTM or of any cell in which no unit's state sees another's) a parameter reaches its
    own unit alone, and both are O(P), found without being told.

    Args:
        stretch: steps that are taken at once. The result is the same for any; a longer one costs
            memory for its steps and saves time, since J is advanced once a stretch. 0 takes as
            many, up to 64, as need little memory
    """

    steps: int | None = None  # what is reached within so many steps is kept; None: all
    longest = 64

    def __init__(self, stretch: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.asked = check.size("stretch", stretch, least=0)
        self._known: WeakKeyDictionary[nn.Module, Influence] = WeakKeyDictionary()

    def stretch(self, model: nn.Module, chunk: Any, state: Any) -> int:
        if self.asked:
            return self.asked
        if model not in self._known:
            first = self.split(chunk, 1)[0]
            # What is dropped must not depend on this look ahead.
            with torch.random.fork_rng({w.device for w in model.parameters() if w.is_cuda}):
                self._influence(model, first, Linearization(self.loss, model, first, state))
        return min(max(MEMORY // self._known[model].bytes_a_step, 1), self.longest)

    def linearize(self, model: nn.Module, stretch: Any, state: Any) -> Linearization:
        known = self._known.get(model)
        only = known.sources if known is not None and known.elementwise else None
        return Linearization(self.loss, model, stretch, state, only=only)

    def reached(
        self, model: nn.Module, stretch: Any, lin: Linearization, δ: Tensor, J: Any
    ) -> dict[str, Tensor]:
        return self._influence(model, stretch, lin).pull(δ, J)

    def advance(
        self, model: nn.Module, stretch: Any, state: Any, lin: Linearization, J: Any
    ) -> Any:
        return self._influence(model, stretch, lin).push(lin, J or {})

    def _influence(self, model: nn.Module, stretch: Any, lin: Linearization) -> Influence:
        if model not in self._known:
            first = self.split(stretch, 1)[0]
            self._known[model] = Influence(
                self.loss, model, first, lin, self.steps, longest=self.asked or self.longest
            )
        return self._known[model]


def _swap(t: Tensor) -> Tensor:
    return t.transpose(0, 1)
