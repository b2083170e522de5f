"""All that an engine needs to run a cell over T steps, and what a step is once masks join it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from metarnn.cells import Cell, Drive, LinearCell, State, Theta

StepInputs = dict[str, Drive]


@dataclass(frozen=True)
class Recurrence:
    """state_t = step(inputs_t, state_{t-1}) for t = 0..T-1, from a given state.

    Resets, zoneout and lengths are part of the step, so that engines need no code for them:
    `resets` [T, B, 1] restarts the state from zero before a step, `zoneout` holds for each state
    part the weight of the old state in the new one (a 0/1 mask [T, B, n] in training, its
    expectation otherwise, None for none), `alive` [T, B, 1] is false from the end of a sequence
    on, where the state stays as it was.
    """

    cell: Cell
    theta: Theta
    drive: Drive  # a tensor [T, B, ...] or a dict of them
    state: State  # [B, n] each
    steps: int
    alive: Tensor | None = None
    resets: Tensor | None = None
    zoneout: tuple[Tensor | float | None, ...] = ()

    @property
    def inputs(self) -> dict[str, Tensor]:
        """What differs from step to step, flat: [T, B, ...] each."""
        drive = self.drive if isinstance(self.drive, dict) else {"": self.drive}
        flat = {f"drive.{name}": value for name, value in drive.items()}
        masks = {"alive": self.alive, "resets": self.resets}
        masks |= {f"zoneout.{k}": z for k, z in enumerate(self.zoneout)}
        return flat | {name: m for name, m in masks.items() if isinstance(m, Tensor)}

    def step(self, inputs: dict[str, Tensor], state: State) -> State:
        """One step; `inputs` holds one time step of each entry of `self.inputs`."""
        before = state
        if self.resets is not None:
            state = tuple(s.masked_fill(inputs["resets"], 0) for s in state)
        drive = {n[6:]: value for n, value in inputs.items() if n.startswith("drive.")}
        after = self.cell.step(
            self.theta, drive if isinstance(self.drive, dict) else drive[""], state
        )
        if self.zoneout:
            keep = [inputs.get(f"zoneout.{k}", z) for k, z in enumerate(self.zoneout)]
            after = tuple(
                new if z is None else z * old + (1 - z) * new
                for z, old, new in zip(keep, state, after, strict=True)
            )
        if self.alive is not None:
            alive = inputs["alive"]
            after = tuple(
                torch.where(alive, new, old) for new, old in zip(after, before, strict=True)
            )
        # Under autocast a product comes out narrower than the state it makes.
        return tuple(new.to(old.dtype) for new, old in zip(after, before, strict=True))

    def affine(self) -> list[tuple[Tensor, Tensor]]:
        """(a, b) of each state part of a linear cell for all T: s_t = a_t ⊙ s_{t-1} + b_t."""
        assert isinstance(self.cell, LinearCell)
        pairs = []
        for k, (a, b) in enumerate(self.cell.affine(self.theta, self.drive)):
            if self.resets is not None:
                a = a.masked_fill(self.resets, 0)
            z = self.zoneout[k] if self.zoneout else None
            if z is not None:
                old = z if self.resets is None else z * ~self.resets
                a, b = old + (1 - z) * a, (1 - z) * b
            if self.alive is not None:
                a, b = a.masked_fill(~self.alive, 1), b.masked_fill(~self.alive, 0)
            pairs.append((a, b))
        return pairs
