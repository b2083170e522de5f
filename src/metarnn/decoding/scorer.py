"""What decoding needs of a model."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Scorer(Protocol):
    """A model that reads a token and tells what may follow.

    In every tensor of a state, however nested, the sequences stand along dimension 1, as in the
    states of `torch.nn`: that is all a search needs to copy, reorder and drop them.

    Two more methods a scorer may have. `coverage(state) -> [N]` is what a coverage penalty
    weighs, Σ_i log min(Σ_t a_ti, 1). `reorder(state, rows)` is called where rows trade
    places within their sentences only: what all hypotheses of a sentence share can stay.
    """

    def step(self, tokens: Tensor, state: Any, /) -> tuple[Tensor, Any]:
        """tokens [N] -> log-probabilities of what follows, [N, V], and the state after them."""
        ...
