"""The reference engine: a Python loop in plain torch, for every cell and every transform."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from metarnn.cells import State
from metarnn.engines.recurrence import Recurrence


def run(recurrence: Recurrence, checkpoint_every: int = 0) -> tuple[Tensor, State]:
    """The output of all steps [T, B, O] and the state after the last one.

    With `checkpoint_every=k` autograd keeps only the states at every k-th step and computes what
    lies between again in the backward pass: memory for T/k + k steps instead of T, at the price
    of one more forward pass.
    """
    # unbind, not x[t]: the gradient of T slices is one stack, that of T selects T full tensors.
    inputs = {name: value.unbind(0) for name, value in recurrence.inputs.items()}

    def span(start: int, stop: int, state: State) -> list[State]:
        states = []
        for t in range(start, stop):
            state = recurrence.step({name: value[t] for name, value in inputs.items()}, state)
            states.append(state)
        return states

    steps, state = recurrence.x.shape[0], recurrence.state
    if not checkpoint_every or not torch.is_grad_enabled():
        states = span(0, steps, state)
    else:
        states = []
        for start in range(0, steps, checkpoint_every):
            stop = min(start + checkpoint_every, steps)
            states += _recomputed(span, start, stop, state)
            state = states[-1]
    whole = tuple(torch.stack(part) for part in zip(*states, strict=True))
    output = recurrence.cell.output(recurrence.theta, recurrence.drive, whole)
    return output, states[-1]


def _recomputed(span, start: int, stop: int, state: State) -> list[State]:
    states = checkpoint(span, start, stop, state, use_reentrant=False, preserve_rng_state=False)
    assert isinstance(states, list)
    return states
