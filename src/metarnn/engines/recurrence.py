"""What an engine runs: a cell over T steps, with its weights, inputs and masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import Cell, Drive, LinearCell, State, Theta

Zoneout = tuple[Any, ...]  # for each state part a mask [T, B, n], a probability or None


@dataclass(frozen=True)
class Recurrence:
    """state_t = step(x_t, state_{t-1}) for t = 0..T-1, from a given state.

    Resets, zoneout and lengths are part of the step, so that engines need no code for them:
    `resets` [T, B, 1] restarts the state from zero before a step, `zoneout` holds for each state
    part the weight of the old state in the new one (a 0/1 mask [T, B, n] in training, its
    expectation otherwise, None for none), `alive` [T, B, 1] is false from the end of a sequence
    on, where the state stays as it was. `extra_inputs` are what the cell reads beside x,
    [T, B, n], or [B, n] where they are the same at all steps.
    """

    cell: Cell
    weights: Mapping[str, Tensor]
    columns: Mapping[str, Tensor]  # factors on the inputs of maps, [B, n] each
    x: Tensor  # [T, B, window · I]
    state: State  # [B, n] each
    alive: Tensor | None = None
    resets: Tensor | None = None
    zoneout: Zoneout = ()
    extra_inputs: Mapping[str, Tensor] = field(default_factory=dict)

    @cached_property
    def theta(self) -> Theta:
        return Theta(self.cell, self.weights, self.columns)

    @cached_property
    def drive(self) -> Drive:
        """What no state enters, for all steps at once: a tensor [T, B, ...] or a dict of them."""
        if not self.extra_inputs:
            return self.cell.drive(self.theta, self.x)
        steps = self.x.shape[0]
        extra = {
            name: value if value.dim() == 3 else value.expand(steps, *value.shape)
            for name, value in self.extra_inputs.items()
        }
        return self.cell.drive(self.theta, {"x": self.x, **extra})

    @property  # not cached: torch.compile cannot look into that
    def masks(self) -> dict[str, Tensor]:
        if self.alive is None and self.resets is None and not self.zoneout:
            return {}
        masks = {"alive": self.alive, "resets": self.resets}
        masks |= {f"zoneout.{k}": z for k, z in enumerate(self.zoneout)}
        return {name: mask for name, mask in masks.items() if isinstance(mask, Tensor)}

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """What differs from step to step once the drive is computed, flat: [T, B, ...] each."""
        drive = self.drive if isinstance(self.drive, dict) else {"": self.drive}
        return {f"drive.{name}": value for name, value in drive.items()} | self.masks

    def split(self, steps: int) -> list[Recurrence]:
        """The same in pieces of so many steps, each of which still needs its state."""
        # split, not slices: its gradient is one concatenation.
        masks = {name: mask.split(steps) for name, mask in self.masks.items()}
        extra = {n: v.split(steps) for n, v in self.extra_inputs.items() if v.dim() == 3}
        pieces = []
        for i, x in enumerate(self.x.split(steps)):
            zoneout = tuple(
                masks[f"zoneout.{k}"][i] if isinstance(z, Tensor) else z
                for k, z in enumerate(self.zoneout)
            )
            alive = masks["alive"][i] if "alive" in masks else None
            resets = masks["resets"][i] if "resets" in masks else None
            fixed = (self.cell, self.weights, self.columns)
            part = {n: extra[n][i] if n in extra else v for n, v in self.extra_inputs.items()}
            pieces.append(Recurrence(*fixed, x, self.state, alive, resets, zoneout, part))
        return pieces

    def step(self, inputs: Mapping[str, Tensor], state: State) -> State:
        """One step; `inputs` holds one time step of each entry of `self.inputs`."""
        if isinstance(self.drive, dict):
            drive = {name: inputs[f"drive.{name}"] for name in self.drive}
        else:
            drive = inputs["drive."]
        after = guarded(self.cell, self.theta, drive, inputs, state, self.zoneout)
        # Under autocast a product comes out narrower than the state it makes.
        return tuple(new.to(old.dtype) for new, old in zip(after, state, strict=True))

    def affine(self) -> list[tuple[Tensor, Tensor]]:
        """(a, b) of each state part of a linear cell for all T: s_t = a_t ⊙ s_{t-1} + b_t."""
        assert isinstance(self.cell, LinearCell)
        pairs = []
        for k, (a, b) in enumerate(self.cell.affine(self.theta, self.drive)):
            z = self.zoneout[k] if self.zoneout else None
            if z is not None:
                a, b = z + (1 - z) * a, (1 - z) * b
            if self.resets is not None:
                a = a.masked_fill(self.resets, 0)
            if self.alive is not None:
                a, b = a.masked_fill(~self.alive, 1), b.masked_fill(~self.alive, 0)
            pairs.append((a, b))
        return pairs


def guarded(
    cell: Cell,
    theta: Theta,
    drive: Drive,
    masks: Mapping[str, Any],
    state: State,
    zoneout: Zoneout = (),
) -> State:
    """A cell's step with resets before it, zoneout and lengths after it, as far as masks say so."""
    before = state
    if "resets" in masks:
        state = tuple(s.masked_fill(masks["resets"], 0) for s in state)
    after = cell.step(theta, drive, state)
    if zoneout:
        keep = [masks.get(f"zoneout.{k}", z) for k, z in enumerate(zoneout)]
        after = tuple(
            new if z is None else z * old + (1 - z) * new
            for z, old, new in zip(keep, state, after, strict=True)
        )
    if "alive" in masks:
        alive = masks["alive"]
        after = tuple(torch.where(alive, n, o) for n, o in zip(after, before, strict=True))
    return after
