"""The reference engine: a Python loop in plain torch, for every cell and every transform."""

from __future__ import annotations

import torch
from torch import Tensor

from metarnn.cells import State
from metarnn.engines.recurrence import Recurrence


def run(recurrence: Recurrence) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one."""
    # unbind, not x[t]: the gradient of T slices is one stack, that of T selects T full tensors.
    inputs = {name: value.unbind(0) for name, value in recurrence.inputs.items()}
    state, states = recurrence.state, []
    for t in range(recurrence.x.shape[0]):
        state = recurrence.step({name: value[t] for name, value in inputs.items()}, state)
        states.append(state)
    whole = tuple(torch.stack(part) for part in zip(*states, strict=True))
    return recurrence.cell.output(recurrence.theta, recurrence.drive, whole), state
