"""One direction of one layer over all time steps: from inputs [T, B, I] to outputs [T, B, O]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from metarnn.cells import Cell, Feedback, State
from metarnn.engines import Recurrence, operator
from metarnn.engines import run as run_engine
from metarnn.layers import window
from metarnn.layers.dropout import Masks
from metarnn.layers.edges import Inputs, at_end, flip

Weights = Mapping[str, Tensor]


class Generator(Protocol):
    """Computes a cell's extra inputs from the layer's inputs, with a state of its own."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The widths of the parts of its state."""
        ...

    @property
    def constant(self) -> bool:
        """Whether it computes [B, n], the same at all steps."""
        ...

    def __call__(
        self, x: Tensor, state: State, call: Inputs, resets: Tensor | None
    ) -> tuple[Mapping[str, Tensor], State]:
        """From x [T, B, I] the extra inputs, [T, B, n] or [B, n], and the state at the end."""
        ...

    def heads(self) -> Heads | None:
        """What a call computes, if it is a layer followed by heads; else None."""
        ...


class Heads(NamedTuple):
    """d_t = M norm(c_t): the outputs c of a layer times a matrix for each extra input."""

    layer: nn.Module  # its state is that of the generator
    weights: nn.Module  # has the matrices [n, width] as parameters, by the names of extra inputs
    width: int
    norm: bool  # whether c is brought to mean 0 and variance 1


@dataclass(frozen=True)
class RunOptions:
    """How a loop is run: by which engine, with checkpoints or not, as which operator."""

    engine: str
    checkpoint_every: int = 0
    operator: str = ""  # where torch.compile is to see one: the cell's name


def state_sizes(cell: Cell, generator: Generator | None = None) -> tuple[int, ...]:
    """The widths of a layer's state: its cell's, past inputs, its generator's."""
    past = ((cell.window - 1) * cell.input_size,) if cell.window > 1 else ()
    return (*cell.states, *past, *(() if generator is None else generator.sizes))


def unroll(
    cell: Cell,
    weights: Weights,
    masks: Masks,
    call: Inputs,
    x: Tensor,
    state: State,
    *,
    backward: bool,
    options: RunOptions,
    generator: Generator | None = None,
) -> tuple[Tensor, State]:
    """Outputs of all steps and the state at each sequence's end, [B, n] each.

    The state may come wider than the cell's (another layer's may be): the rest stays zero.
    """
    widths = [part.shape[-1] for part in state]
    sizes = state_sizes(cell, generator)
    if sizes != tuple(widths):
        state = tuple(part[..., :n] for part, n in zip(state, sizes, strict=True))
    resets = call.resets
    if backward:
        x = flip(x, call.lengths)
        resets = None if resets is None else flip(_before_next(resets, call), call.lengths)
        if call.context is not None and call.context.dim() == 3:
            call = replace(call, context=flip(call.context, call.lengths))
    rest = (masks, call, x, resets, state, options)
    if call.teacher is not None and isinstance(cell, Feedback):
        output, final = _teach(cell, weights, *rest)
    else:
        output, final = _run(cell, weights, *rest, generator)
    if call.alive is not None:
        output = output.masked_fill(~call.alive, 0)
    final = tuple(
        part if part.shape[-1] == n else pad(part, (0, n - part.shape[-1]))
        for part, n in zip(final, widths, strict=True)
    )
    return flip(output, call.lengths) if backward else output, final


def _run(
    cell: Cell,
    weights: Weights,
    masks: Masks,
    call: Inputs,
    x: Tensor,
    resets: Tensor | None,
    state: State,
    options: RunOptions,
    generator: Generator | None = None,
) -> tuple[Tensor, State]:
    past: State = ()
    extra: Mapping[str, Tensor] = {}
    generator_state: State = ()
    if generator is not None:
        own = len(state) - len(generator.sizes)
        extra, generator_state = generator(x, state[own:], call, resets)
        state = state[:own]
    if cell.window > 1:
        x, kept = window.stack(x, state[-1], cell.window, call.lengths, resets)
        state, past = state[:-1], (kept,)
    zoneout = masks.zoneout[: len(cell.states)]
    recurrence = Recurrence(
        cell, weights, masks.columns, x, state, call.alive, resets, zoneout, extra
    )
    if call.teacher is not None and cell.state_is_output:
        # No step waits for another one: the step is applied to all of them at once.
        states = recurrence.step(recurrence.inputs, (delayed(call.teacher, state[0]),))
        output = cell.output(recurrence.theta, recurrence.drive, states)
        final = (at_end(call.teacher, call.lengths),)
    else:
        output, final = run_loop(options, recurrence)
    return output, (*final, *past, *generator_state)


def run_loop(options: RunOptions, recurrence: Recurrence) -> tuple[Tensor, State]:
    if options.operator:
        return operator.run(options.operator, options.engine, recurrence)
    return run_engine(options.engine, recurrence, options.checkpoint_every)


def _teach(
    cell: Feedback,
    weights: Weights,
    masks: Masks,
    call: Inputs,
    x: Tensor,
    resets: Tensor | None,
    state: State,
    options: RunOptions,
) -> tuple[Tensor, State]:
    """A cell that feeds back, run on the true outputs: its unit on [x_t; y_{t-1}]."""
    assert call.teacher is not None
    parts = len(cell.unit.states)
    inner, (y, *past) = state[:parts], state[parts:]
    previous = delayed(call.teacher, y)
    previous = previous if resets is None else previous.masked_fill(resets, 0)
    x = torch.cat([x, previous], -1)
    state = (*inner, *past)
    output, final = _run(cell.unit, weights, masks, call, x, resets, state, options)
    return output, (*final[:parts], at_end(call.teacher, call.lengths), *final[parts:])


def delayed(values: Tensor, first: Tensor) -> Tensor:
    return torch.cat([first.unsqueeze(0), values[:-1]])


def _before_next(resets: Tensor, call: Inputs) -> Tensor:
    """Where a backward pass starts anew: at the step before one that restarts the forward pass."""
    resets = torch.cat([resets[1:], torch.zeros_like(resets[:1])])
    return resets if call.alive is None else resets & call.alive
