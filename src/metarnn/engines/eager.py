"""The reference engine: a Python loop in plain torch, for every cell and every transform."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from metarnn.cells import State
from metarnn.engines.recurrence import Recurrence


def run(recurrence: Recurrence, checkpoint_every: int = 0) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one.

    With `checkpoint_every=k` autograd keeps inputs, outputs and the state at every k-th step, and
    computes all that lies between again in the backward pass: memory for T/k + k steps instead of
    T, at the price of one more forward pass (docs/results.md has figures).
    """
    if not checkpoint_every or not torch.is_grad_enabled():
        return _loop(recurrence)
    outputs, state = [], recurrence.state
    for piece in recurrence.split(checkpoint_every):
        output, state = checkpoint(  # type: ignore[misc]
            _afresh, piece, state, use_reentrant=False, preserve_rng_state=False
        )
        outputs.append(output)
    return torch.cat(outputs), state


def _afresh(recurrence: Recurrence, state: State) -> tuple[Tensor, State]:
    # A new one each time: a recurrence holds on to its drive, which is to be forgotten.
    return _loop(replace(recurrence, state=state))


def _loop(recurrence: Recurrence) -> tuple[Tensor, State]:
    # unbind, not x[t]: the gradient of T slices is one stack, that of T selects T full tensors.
    inputs = {name: value.unbind(0) for name, value in recurrence.inputs.items()}
    state, states = recurrence.state, []
    for t in range(recurrence.x.shape[0]):
        state = recurrence.step({name: value[t] for name, value in inputs.items()}, state)
        states.append(state)
    whole = tuple(torch.stack(part) for part in zip(*states, strict=True))
    return recurrence.cell.output(recurrence.theta, recurrence.drive, whole), state
