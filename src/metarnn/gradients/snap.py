"""Approximations of RTRL that keep the influence of each parameter on a few units only."""

from __future__ import annotations

from typing import Any

from torch import nn

from metarnn.cells import check
from metarnn.gradients.influence import Influence
from metarnn.gradients.linearize import Linearization
from metarnn.gradients.rtrl import RTRL


class SnAp(RTRL):
    """The sparse n-step approximation (Menick et al. 2021).

    Of J = ds/dθ, only entries are kept that are reached within n steps; the rest counts as zero.
    SnAp-1 keeps the units that a parameter enters at once: its own. In a layer whose units all see
    one another SnAp-2 keeps everything, and is RTRL.

    Bias: paths that leave those units and return. Variance: none. Memory of SnAp-1: O(P). Time:
    O(P) and one derivative of the step by its state, O(S P).
    """

    def __init__(self, n: int = 1, **options: Any) -> None:
        super().__init__(stretch=1, **options)
        self.steps = check.size("n", n)


class RFLO(RTRL):
    """Random feedback online learning, e-prop (Murray 2019; Bellec et al. 2020).

    Each parameter has an eligibility trace, its influence on the state as if the recurrent maps
    saw constants: only what a unit keeps of itself, f_t ⊙ c_{t-1} in an LSTM, carries it on.

        e_t = D̃_t e_{t-1} + ∂⁺s_t/∂θ,   D̃ = ∂s_t/∂s_{t-1} without the maps

    The error that meets it is the true one, not a random projection. In a cell that keeps nothing
    of itself (Elman) the trace is one step long.

    Bias: all paths through recurrent maps but for the last one. Variance: none. Time and memory:
    O(P).
    """

    steps = 1

    def __init__(self, **options: Any) -> None:
        super().__init__(stretch=1, **options)

    def advance(
        self, model: nn.Module, stretch: Any, state: Any, lin: Linearization, J: Any
    ) -> Any:
        cut = Linearization(self.loss, model, stretch, state, cut=True)
        return super().advance(model, stretch, state, cut, J)

    def _influence(self, model: nn.Module, stretch: Any, lin: Linearization) -> Influence:
        if model not in self._known:
            self._known[model] = Influence(self.loss, model, stretch, lin, 1, cut=True)
        return self._known[model]
