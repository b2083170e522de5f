"""Dropout for recurrent layers: every mask is sampled before any engine runs, so all agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from metarnn.cells import Cell, check


@dataclass(frozen=True)
class Dropout:
    """How much of what is dropped, all probabilities.

    between      outputs passed from one layer to the next, anew at each step (torch.nn's dropout)
    variational  the same, but one mask for all steps of a sequence
    input        the stack's input, one mask for all steps
    recurrent    the state on its way into the recurrent maps, one mask for all steps
    zoneout      for each part of the state: units that keep their old value for a step
    weight       weights of a linear map, by the map's name, one mask a call (DropConnect)
    """

    between: float = 0.0
    variational: float = 0.0
    input: float = 0.0
    recurrent: float = 0.0
    zoneout: tuple[float, ...] = ()
    weight: Mapping[str, float] | None = None

    def acts(self, training: bool) -> bool:
        """Whether anything inside a layer is dropped or held."""
        return bool(self.zoneout or (training and (self.recurrent or self.weight)))

    def any(self, training: bool) -> bool:
        """Whether anything at all is dropped or held."""
        outside = self.input or self.between or self.variational
        return self.acts(training) or bool(training and outside)

    @classmethod
    def of(
        cls,
        cell: Cell,
        dropout: float,
        variational_dropout: float,
        input_dropout: float,
        recurrent_dropout: float,
        zoneout: float | tuple[float, ...],
        weight_drop: float | Mapping[str, float],
    ) -> Dropout:
        recurrent = [name for name, m in cell.maps.items() if m.recurrent]
        kind = type(cell).__name__
        if check.probability("recurrent_dropout", recurrent_dropout) and not recurrent:
            advice = "Try zoneout or variational_dropout."
            check.refuse(
                "recurrent_dropout", recurrent_dropout, f"0: {kind} has no recurrent map", advice
            )
        if not isinstance(weight_drop, Mapping):
            if check.probability("weight_drop", weight_drop) and not recurrent:
                advice = f"Name the maps, as in weight_drop={{{next(iter(cell.maps))!r}: 0.5}}."
                check.refuse("weight_drop", weight_drop, f"0: {kind} has no recurrent map", advice)
            weight_drop = dict.fromkeys(recurrent, weight_drop) if weight_drop else {}
        for name, p in weight_drop.items():
            check.one_of("weight_drop", name, cell.maps)
            check.probability(f"weight_drop[{name!r}]", p)
        if not isinstance(zoneout, tuple | list):
            zoneout = (zoneout,) * cell.held if check.probability("zoneout", zoneout) else ()
        elif len(zoneout) != cell.held:
            check.refuse("zoneout", zoneout, f"one value for each of {cell.held} state parts")
        for p in zoneout:
            check.probability("zoneout", p)
        return cls(
            check.probability("dropout", dropout),
            check.probability("variational_dropout", variational_dropout),
            check.probability("input_dropout", input_dropout),
            recurrent_dropout,
            tuple(zoneout) if any(zoneout) else (),
            {name: p for name, p in weight_drop.items() if p},
        )


@dataclass(frozen=True)
class Masks:
    """What one call drops in one direction of one layer."""

    columns: Mapping[str, Tensor]  # factors on the inputs of the recurrent maps, [B, n]
    zoneout: tuple[Tensor | float | None, ...]  # the old state's weight in each state part
    weights: Mapping[str, Tensor]  # factors on whole weights


NOTHING = Masks({}, (), {})


def keep(p: float, *shape: int, like: Tensor) -> Tensor:
    """A mask of 0 with probability p, else 1/(1-p)."""
    return F.dropout(like.new_ones(shape), p)


def sample(
    dropout: Dropout, cell: Cell, steps: int, batch: int, like: Tensor, training: bool
) -> Masks:
    # What a cell carries beside its own state (a fed-back output) is never held.
    rates = [p or None for p in dropout.zoneout]
    rates += [None] * (len(cell.states) - len(rates) if rates else 0)
    if not training:
        return Masks({}, tuple(rates), {})
    maps = cell.maps
    weights = {
        f"weight_{name}": keep(p, maps[name].outputs, maps[name].inputs, like=like)
        for name, p in (dropout.weight or {}).items()
        if name in maps  # an upper layer may need fewer, as SRU does without a highway map
    }
    columns = {
        name: keep(dropout.recurrent, batch, m.inputs, like=like)
        for name, m in maps.items()
        if dropout.recurrent and m.recurrent
    }
    zoneout = tuple(
        p and (torch.rand(steps, batch, n, device=like.device) < p).to(like.dtype)
        for p, n in zip(rates, cell.states, strict=False)
    )
    return Masks(columns, zoneout, weights)


def between(dropouts: Dropout, x: Tensor, width: int, training: bool) -> Tensor | None:
    """The factors on what one layer of that width hands to the next, None for none."""
    if not training:
        return None
    steps, batch, _ = x.shape
    mask = None
    for p, extent in ((dropouts.between, steps), (dropouts.variational, 1)):
        if p:
            new = keep(p, extent, batch, width, like=x)
            mask = new if mask is None else mask * new
    return mask
