"""Layers one above the other, in one direction or two: what a call does once all is sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from metarnn.cells import Cell, State
from metarnn.engines import native as torchs
from metarnn.engines import triton
from metarnn.layers.dropout import Masks
from metarnn.layers.edges import Inputs
from metarnn.layers.unroll import Source, Way, unroll


@dataclass(frozen=True)
class Floor:
    """One layer of a stack in one call: its cell; for each direction its weights, its masks, and
    where what the cell is given comes from."""

    cell: Cell
    weights: Sequence[Mapping[str, Tensor]]
    masks: Sequence[Masks]
    sources: Sequence[Source | None] = (None, None)
    operator: str = ""  # the cell's name as an operator, where torch.compile is to see one

    @property
    def directions(self) -> int:
        return len(self.weights)


def alone(part: Tensor) -> Tensor:
    """A single layer's state, [1, B, n]; no view in training: it may be detached in place."""
    return torch.stack([part]) if torch.is_grad_enabled() else part.unsqueeze(0)


def layers(
    floors: Sequence[Floor], call: Inputs, x: Tensor, state: State, merge: str, way: Way
) -> tuple[Tensor, State]:
    """Layers one after the other; state and final state [layers × directions, B, n]."""
    finals: list[State] = []
    for floor in floors:
        first = len(finals)
        rows = [tuple(part[first + d] for part in state) for d in range(floor.directions)]
        found = _directions(floor, call, x, rows, way)
        finals += [final for _, final in found]
        x = merged([output for output, _ in found], merge)
    if len(finals) == 1:
        return x, tuple(map(alone, finals[0]))
    return x, tuple(torch.stack(part) for part in zip(*finals, strict=True))


def merged(outputs: Sequence[Tensor], merge: str) -> Tensor:
    """The outputs of one direction or two as one."""
    if len(outputs) == 1:
        return outputs[0]
    return torch.cat(list(outputs), -1) if merge == "concat" else outputs[0] + outputs[1]


def _directions(
    floor: Floor, call: Inputs, x: Tensor, state: Sequence[State], way: Way
) -> list[tuple[Tensor, State]]:
    """Each direction's outputs and final state; on a GPU both at the same time."""
    way = replace(way, operator=floor.operator)

    def run(direction: int) -> tuple[Tensor, State]:
        return unroll(
            floor.cell,
            floor.weights[direction],
            floor.masks[direction],
            call,
            x,
            state[direction],
            backward=direction == 1,
            way=way,
            source=floor.sources[direction],
        )

    fused = floor.directions == 2 and way.engine == "triton" and not floor.operator
    halves = triton.side_by_side(floor.cell, x) if fused else None
    if halves is None:
        return [run(direction) for direction in range(floor.directions)]
    with halves:
        first = run(0)
        with halves.aside(x, *state[1], call.alive, call.resets, call.lengths, call.context):
            second = run(1)
        return [first, halves.back(*second)]


def native(
    floors: Sequence[Floor], call: Inputs, x: Tensor, state: State, merge: str, way: Way
) -> tuple[Tensor, State]:
    """Layers in one call of torch's own kernel; `layers` gives the gradients it lacks."""

    def composition(x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        weights = iter(tensors[len(state) :])
        again = [
            Floor(f.cell, [dict(zip(w, weights, strict=False)) for w in f.weights], f.masks)
            for f in floors
        ]
        eager = replace(way, engine="eager")
        output, final = layers(again, call, x, tensors[: len(state)], "concat", eager)
        return output, *final

    directions = floors[0].directions
    output, final = torchs.run(
        floors[0].cell,
        x,
        state,
        [w for floor in floors for named in floor.weights for w in named.values()],
        layers=len(floors),
        bidirectional=directions == 2,
        lengths=call.lengths,
        composition=composition,
    )
    return merged(output.chunk(directions, -1), merge) if directions == 2 else output, final
