"""Layers one above the other, in one direction or two: what a call does once all is sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from metarnn.cells import Cell, State
from metarnn.engines.native import run_stack
from metarnn.layers.dropout import Masks
from metarnn.layers.edges import Inputs, single
from metarnn.layers.unroll import Generator, RunOptions, unroll


@dataclass(frozen=True)
class StackLayer:
    """One layer of a stack in one call: its cell; for each direction its weights, its masks, and
    what generates the cell's extra inputs."""

    cell: Cell
    weights: Sequence[Mapping[str, Tensor]]
    masks: Sequence[Masks]
    generators: Sequence[Generator | None] = (None, None)
    operator: str = ""  # the cell's name as an operator, where torch.compile is to see one

    @property
    def directions(self) -> int:
        return len(self.weights)


def run_layers(
    layers: Sequence[StackLayer],
    call: Inputs,
    x: Tensor,
    state: State,
    merge: str,
    options: RunOptions,
) -> tuple[Tensor, State]:
    """Layers one after the other; state and final state [layers × directions, B, n]."""
    finals: list[State] = []
    for layer in layers:
        first, outputs = len(finals), []
        own = replace(options, operator=layer.operator)
        for direction in range(layer.directions):
            output, final = unroll(
                layer.cell,
                layer.weights[direction],
                layer.masks[direction],
                call,
                x,
                tuple(part[first + direction] for part in state),
                backward=direction == 1,
                options=own,
                generator=layer.generators[direction],
            )
            outputs.append(output)
            finals.append(final)
        x = merged(outputs, merge)
    if len(finals) == 1:
        return x, tuple(map(single, finals[0]))
    return x, tuple(torch.stack(part) for part in zip(*finals, strict=True))


def merged(outputs: Sequence[Tensor], merge: str) -> Tensor:
    """The outputs of one direction or two as one."""
    if len(outputs) == 1:
        return outputs[0]
    return torch.cat(list(outputs), -1) if merge == "concat" else outputs[0] + outputs[1]


def run_native(
    layers: Sequence[StackLayer],
    call: Inputs,
    x: Tensor,
    state: State,
    merge: str,
    options: RunOptions,
) -> tuple[Tensor, State]:
    """Layers in one call of torch's own kernel; `run_layers` gives the gradients it lacks."""

    def composition(x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        weights = iter(tensors[len(state) :])
        same = [
            StackLayer(
                layer.cell,
                [dict(zip(named, weights, strict=False)) for named in layer.weights],
                layer.masks,
            )
            for layer in layers
        ]
        eager = replace(options, engine="eager")
        output, final = run_layers(same, call, x, tensors[: len(state)], "concat", eager)
        return output, *final

    directions = layers[0].directions
    output, final = run_stack(
        layers[0].cell,
        x,
        state,
        [w for layer in layers for named in layer.weights for w in named.values()],
        layers=len(layers),
        bidirectional=directions == 2,
        lengths=call.lengths,
        composition=composition,
    )
    return merged(output.chunk(directions, -1), merge) if directions == 2 else output, final
