"""A unit that is not decided yet: at each choice point a mixture of candidate operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.cells.base import Cell, Drive, Map, State, Theta, pointwise

CHOICE = "choice_"  # before the name of a choice point: the vector of its logits α

CARRIES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "gate": lambda z, n, h: (1 - z) * n + z * h,  # GRU
    "add": lambda z, n, h: h + z * n,  # additive memory
    "replace": lambda z, n, h: n,  # Elman
    "scale": lambda z, n, h: z * h + n,
}


def mix(logits: Tensor, candidates: Sequence[Tensor]) -> Tensor:
    """Σ_k softmax(α)_k y_k, from logits [..., K] and K rows y_k [..., n]."""
    share = torch.softmax(logits, -1)
    total = share[..., :1] * candidates[0]
    for k, candidate in enumerate(candidates[1:], 1):
        total = total + share[..., k : k + 1] * candidate
    return total


class Mixed(Cell):
    """A gated unit whose activation and whose way to carry its state are mixtures.

    z_t = σ(W_z x_t + U_z h_{t-1} + b_z),  r_t = σ(W_r x_t + U_r h_{t-1} + b_r)
    n_t = Σ_k softmax(α)_k φ_k(W_n x_t + r_t ⊙ U_n h_{t-1} + b_n)
    h_t = Σ_k softmax(β)_k carry_k(z_t, n_t, h_{t-1})

    α and β are the vectors `choice_activation` and `choice_carry`, 0 at first: all candidates
    alike. A hypernetwork may write them (`form="structure"`), a search settle on the largest.
    """

    activations: tuple[str, ...] = ("tanh", "relu", "sigmoid", "identity")
    carries: tuple[str, ...] = ("gate", "add", "replace", "scale")

    def __post_init__(self) -> None:
        super().__post_init__()
        for φ in self.activations:
            pointwise("activations", φ)
        for carry in self.carries:
            check.one_of("carries", carry, CARRIES)
        if not self.activations or not self.carries:
            check.refuse("activations and carries", (), "one candidate of each at least")

    @property
    def maps(self) -> dict[str, Map]:
        rows = (self.hidden_size,) * 3
        return {
            "ih": Map(self.input_size, rows),
            "hh": Map(self.hidden_size, rows, bias=False, recurrent=True),
        }

    @property
    def vectors(self) -> dict[str, int]:
        choices = {"activation": self.activations, "carry": self.carries}
        return {CHOICE + name: len(candidates) for name, candidates in choices.items()}

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        return theta.ih(x)

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        (h,) = state
        xz, xr, xn = drive.chunk(3, -1)
        hz, hr, hn = theta.hh(h).chunk(3, -1)
        z, r = torch.sigmoid(xz + hz), torch.sigmoid(xr + hr)
        a = xn + r * hn
        n = mix(theta.choice_activation, [pointwise("φ", φ)(a) for φ in self.activations])
        return (mix(theta.choice_carry, [CARRIES[carry](z, n, h) for carry in self.carries]),)
