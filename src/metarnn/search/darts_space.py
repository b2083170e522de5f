"""The space of DARTS-RNN (Liu et al. 2019), so that published searches can be repeated.

It contains neither LSTM nor GRU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from metarnn.cells import Cell, Drive, Map, State, Theta, check
from metarnn.cells.base import POINTWISE
from metarnn.search import known
from metarnn.search.genotype import ACTIVATIONS, Genotype
from metarnn.search.space import Choices, Decision, Shares, Space, added, bounded, weighted


@dataclass(frozen=True)
class DartsSpace(Space):
    """Node i takes one predecessor p and one activation f: s_i = s_p + σ(c) ⊙ (f(g) - s_p).

    >>> space = DartsSpace()
    >>> space.encode(known.DARTS_V2)
    (2, 5, 5, 7, 8, 22, 12, 21)

    There is no option `none` and no batch norm in its mixture: with them the mixture and the unit
    derived from it would be different things.
    """

    nodes: int = 8
    activations: tuple[str, ...] = ("tanh", "relu", "sigmoid", "identity")

    def __post_init__(self) -> None:
        check.size("nodes", self.nodes)
        for act in self.activations:
            check.one_of("activations", act, ACTIVATIONS)

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:  # type: ignore[override]
        return tuple(
            Decision(f"s{i}", tuple(f"{f} {p}" for p in range(i) for f in self.activations), True)
            for i in range(1, self.nodes + 1)
        )

    def genotype(self, choices: Choices) -> Genotype:
        return known.darts(self._nodes(choices))

    def _nodes(self, choices: Choices) -> list[tuple[str, int]]:
        count = len(self.activations)
        return [(self.activations[k % count], k // count) for k in choices]

    def encode(self, genotype: Genotype) -> Choices:
        made = {each.name: each for each in genotype.operations}
        try:
            nodes = [
                (made[f"g{i}"].act, int(made[f"s{i}"].args[2][1:]))
                for i in range(1, self.nodes + 1)
            ]
            choices = tuple(
                decision.options.index(f"{f} {p}")
                for decision, (f, p) in zip(self.decisions, nodes, strict=True)
            )
        except (KeyError, ValueError, IndexError):
            choices = ()
        if not choices or self.genotype(choices) != genotype:
            raise ValueError(f"this unit is none of DARTS-RNN with {self.nodes} nodes:\n{genotype}")
        return choices

    def mixture(self, input_size: int, hidden_size: int) -> DartsMixture:
        return DartsMixture(input_size, hidden_size, self)

    def inherited(
        self, choices: Choices, weights: Mapping[str, Tensor], hidden_size: int
    ) -> dict[str, Tensor]:
        found = {name: weights[name] for name in ("weight_ih", "weight_hh")}
        parts: dict[int, list[Tensor]] = {}
        for i, (_, p) in enumerate(self._nodes(choices), 1):
            parts.setdefault(p, []).append(weights[f"weight_s{i}"])
        return found | {f"weight_s{p}_h": torch.cat(rows) for p, rows in parts.items()}


class DartsMixture(Cell):
    """All units of a `DartsSpace` at once: each pair of p and f counts by its share in `mix`.

    s_i = Σ_p Σ_f mix_{p,f} (s_p + σ(c_p) ⊙ (f(g_p) - s_p)),  [c_p, g_p] = W_i s_p
    h'  = mean of s_1, s_2, …
    """

    space: DartsSpace

    @property
    def maps(self) -> dict[str, Map]:
        H = self.hidden_size
        nodes = {f"s{i}": Map(H, (H, H), False, True) for i in range(1, self.space.nodes + 1)}
        return {
            "ih": Map(self.input_size, (H, H), bias=False),
            "hh": Map(H, (H, H), bias=False, recurrent=True),
            **nodes,
        }

    @property
    def vectors(self) -> dict[str, int]:
        return {"mix": sum(self.space.sizes)}

    def drive(self, theta: Theta, x: Tensor) -> Drive:
        return theta.ih(x)

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        (h,) = state
        shares = Shares(theta.mix, self.space.decisions)
        c, g = (drive + theta.hh(h)).chunk(2, -1)
        nodes = [h + torch.sigmoid(c) * (torch.tanh(g) - h)]
        for decision in self.space.decisions:
            options, parts = shares.of(decision.name), []
            for p, s in enumerate(nodes):
                c, g = getattr(theta, decision.name)(s).chunk(2, -1)
                own = {f: options[f"{f} {p}"] for f in self.space.activations}
                made = weighted((share, POINTWISE[f](g)) for f, share in own.items())
                kept = added(own.values()) * s
                parts.append(kept + torch.sigmoid(c) * (made - kept))
            nodes.append(added(parts))
        return bounded([added(nodes[1:]) * (1 / self.space.nodes)])
