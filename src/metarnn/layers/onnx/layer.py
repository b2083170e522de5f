"""Recurrent layers as ONNX: a step, or a loop over any number of them (ONNX's Scan)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from metarnn.cells import Cell, check
from metarnn.graph import trace_cell
from metarnn.layers.onnx.builder import Builder
from metarnn.layers.onnx.step import Step
from metarnn.layers.recurrent import Recurrent
from metarnn.layers.unroll import state_sizes


class Given(Protocol):
    """Writes what a unit is given beside x, made of x by the layer's source (see `hyper.onnx`)."""

    def whole(
        self, b: Builder, source: Any, x: str, loop: Loop
    ) -> tuple[dict[str, str], list[str]]:
        """Of x [T, B, I] rows [T, B, n] by name, and the source's state [B, n] at the end."""
        ...

    def step(
        self, b: Builder, source: Any, x: str, state: list[str], int8: bool
    ) -> tuple[dict[str, str], list[str]]:
        """Of x [B, I] and its state [B, n] rows [B, n] by name, and the state after it."""
        ...


@dataclass(frozen=True)
class Loop:
    """What the sequences of a call have in common.

    alive     [T, B, 1] of booleans, false from the end of each sequence on; "" where all are T long
    int8      round matrix products to a byte
    given     for units that are given more than x
    backward  read sequences from their ends, and with its second direction from their starts
    """

    alive: str = ""
    int8: bool = False
    given: Given | None = None
    backward: bool = False


def write_step(
    b: Builder,
    layer: Recurrent,
    x: str,
    state: Sequence[str],
    int8: bool = False,
    given: Given | None = None,
) -> tuple[str, list[str]]:
    """One step of all layers: x [B, I] and the state's parts [layers · directions, B, n]; the same
    after it. With two directions it is a sequence of one step."""
    finals: list[list[str]] = []
    for k in range(layer.num_layers):
        ways: list[str] = []
        for direction in range(layer.directions):
            y, final = _step(b, layer, k, direction, x, state, int8, given)
            ways.append(y)
            finals.append(final)
        y = _merged(b, layer, ways)
        x = b.add("Add", y, x) if layer.residual and k else y
    return x, _stacked(b, layer, finals)


def _step(
    b: Builder,
    layer: Recurrent,
    k: int,
    direction: int,
    x: str,
    state: Sequence[str],
    int8: bool,
    given: Given | None,
) -> tuple[str, list[str]]:
    """One step of one direction of one layer: its output, and its state after it."""
    cell, source = layer.cells[k], _source(layer, k, direction, given)
    sizes, row = state_sizes(cell, source), k * layer.directions + direction
    rows = [_row(b, part, row, n) for part, n in zip(state, sizes, strict=True)]
    count = len(cell.states) + (cell.window > 1)
    inner, past, rest = rows[: len(cell.states)], rows[len(cell.states) : count], rows[count:]
    more: dict[str, str] = {}
    if source is not None and given is not None:
        more, rest = given.step(b, source, x, rest, int8)
    seen = x
    if cell.window > 1:
        seen = b.add("Concat", past[0], x, axis=-1)
        past = [b.slice(seen, cell.input_size, cell.window * cell.input_size, -1)]
    new, y = _cell(b, cell, layer.weights(k, direction), int8)({"x": seen, **more}, inner, x)
    return y, [*new, *past, *rest]


def _merged(b: Builder, layer: Recurrent, ways: list[str]) -> str:
    """The outputs of a layer's directions as one."""
    if len(ways) == 1:
        return ways[0]
    return b.add("Add", *ways) if layer.merge == "sum" else b.add("Concat", *ways, axis=-1)


def write_layer(b: Builder, layer: Recurrent, x: str, loop: Loop = Loop()) -> str:  # noqa: B008
    """All steps of all layers from a state of zeros: x [T, B, I] -> y [T, B, O]; x is zero where a
    sequence has ended."""
    return write_states(b, layer, x, loop)[0]


def write_states(b: Builder, layer: Recurrent, x: str, loop: Loop) -> tuple[str, list[str]]:
    """The same with the state at each sequence's end, parts of [layers · directions, B, n]."""
    batch, finals = b.batch(x, 1), []
    for k in range(layer.num_layers):
        both = [_scan(b, layer, k, d, x, batch, loop) for d in range(layer.directions)]
        finals += [final for _, final in both]
        y = _merged(b, layer, [y for y, _ in both])
        x = b.add("Add", y, x) if layer.residual and k else y
    return x, _stacked(b, layer, finals)


def _scan(
    b: Builder, layer: Recurrent, k: int, direction: int, x: str, batch: str, loop: Loop
) -> tuple[str, list[str]]:
    """One direction of one layer: its outputs, and its state at each sequence's end."""
    cell, weights = layer.cells[k], layer.weights(k, direction)
    source, backward = _source(layer, k, direction, loop.given), (direction == 1) != loop.backward
    rows: dict[str, str] = {}
    last: list[str] = []
    if source is not None and loop.given is not None:
        rows, last = loop.given.whole(b, source, x, replace(loop, backward=backward))
    x = _windows(b, cell, x, batch, backward)
    if cell.window > 1:
        at_end = write_end(b, x, loop.alive, backward)
        inputs, size = cell.input_size, cell.window * cell.input_size
        last = [b.slice(at_end, inputs, size, -1), *last]
    inner = Builder(b.constants, prefix=f"{b.name()}_")
    many = inner.own_batch
    state = [inner.input(f"{inner.prefix}s{k}", (many, n)) for k, n in enumerate(cell.states)]
    seen = inner.input(f"{inner.prefix}x", (many, cell.window * cell.input_size))
    own = {n: inner.input(f"{inner.prefix}{n}", (many, w)) for n, w in cell.extra_inputs.items()}
    new, y = _cell(inner, cell, weights, loop.int8)({"x": seen, **own}, state, seen)
    streams = [x, *(rows[n] for n in own)]
    if loop.alive:
        alive = inner.input(f"{inner.prefix}alive", (many, 1), "bool")
        streams.append(loop.alive)
        new = [inner.add("Where", alive, n, old) for n, old in zip(new, state, strict=True)]
        nothing = inner.const(torch.zeros(1))
        y = inner.add("Where", alive, y, nothing)
    for k, (value, n) in enumerate(zip(new, cell.states, strict=True)):
        inner.output(value, f"{inner.prefix}n{k}", (many, n))
    inner.output(y, f"{inner.prefix}y", (many, cell.output_size))
    first = [b.filled(batch, b.ints(n)) for n in cell.states]
    ways = [int(backward)] * len(streams)
    *finals, out = b.several(
        "Scan",
        [*first, *streams],
        len(first) + 1,
        body=inner.graph("step"),
        num_scan_inputs=len(streams),
        scan_input_directions=ways,
        scan_output_directions=ways[:1],
    )
    return out, [*finals, *last]


def write_end(b: Builder, x: str, alive: str, backward: bool) -> str:
    """The last row of each sequence that is read, [B, n]; the first where it is read backward."""
    if backward or not alive:
        return b.add("Gather", x, b.const(torch.tensor(0 if backward else -1)), axis=0)
    steps = b.add("ReduceSum", b.add("Cast", alive, to=7), b.ints(0), keepdims=0)  # [B, 1]
    place = b.add("Sub", steps, b.ints(1))
    return b.add("GatherND", b.add("Transpose", x, perm=[1, 0, 2]), place, batch_dims=1)


def _windows(b: Builder, cell: Cell, x: str, batch: str, backward: bool) -> str:
    """[x_{t-w+1}; …; x_t] for each t, from the other end where that is where it begins."""
    before = cell.window - 1
    if not before:
        return x
    nothing = b.filled(b.ints(before), batch, b.ints(cell.input_size))
    padded = b.add("Concat", *([x, nothing] if backward else [nothing, x]), axis=0)
    rows = []
    for k in range(cell.window):
        start = before - k if backward else k
        stop = start - before  # from the end; 0 would be nothing
        rows.append(b.slice(padded, start, stop if stop else 2**62, 0))
    return b.add("Concat", *rows, axis=-1)


def _cell(b: Builder, cell: Cell, weights: Mapping[str, Tensor], int8: bool) -> Step:
    return Step(b, trace_cell(cell), weights, int8)


def _source(layer: Recurrent, k: int, direction: int, given: Given | None) -> Any:
    """What gives the unit of a layer more than x, None where nothing does."""
    source = layer.generator(k, direction)
    if source is not None and given is None:
        check.refuse("given", None, "hyper.onnx.GIVEN, for weights that are generated")
    return source


def _row(b: Builder, part: str, k: int, width: int) -> str:
    """Layer k of a part of the state, [B, width]; the widest layer's may be wider."""
    row = b.add("Squeeze", b.slice(part, k, k + 1, 0), b.ints(0))
    return b.slice(row, 0, width, -1)


def _stacked(b: Builder, layer: Recurrent, finals: list[list[str]]) -> list[str]:
    found = []
    for part, width in zip(zip(*finals, strict=True), layer.state_sizes, strict=True):
        rows = []
        for row in part:
            short = b.add("Sub", b.ints(width), b.batch(row, 1))
            more = b.filled(b.batch(row, 0), short)
            rows.append(b.add("Unsqueeze", b.add("Concat", row, more, axis=-1), b.ints(0)))
        found.append(b.add("Concat", *rows, axis=0) if len(rows) > 1 else rows[0])
    return found


def step_model(layer: Recurrent, int8: bool = False, given: Given | None = None) -> bytes:
    """An ONNX file of one step: x [B, I], state_0 … -> y [B, O], state_0_next …, B of any size."""
    if layer.bidirectional:
        check.refuse(
            "step", "of a bidirectional layer", "one direction: the other begins at the end"
        )
    b = Builder()
    x = b.input("x", ("B", layer.input_size))
    rows = layer.num_layers
    state = [b.input(f"state_{k}", (rows, "B", n)) for k, n in enumerate(layer.state_sizes)]
    y, after = write_step(b, layer, x, state, int8, given)
    b.output(y, "y", ("B", layer.output_size))
    for k, (value, n) in enumerate(zip(after, layer.state_sizes, strict=True)):
        b.output(value, f"state_{k}_next", (rows, "B", n))
    return b.model("step")


def sequence_model(layer: Recurrent, int8: bool = False, given: Given | None = None) -> bytes:
    """An ONNX file of whole sequences: x [T, B, I], lengths [B] -> y [T, B, O], T and B of any
    size."""
    b = Builder()
    x = b.input("x", ("T", "B", layer.input_size))
    alive = write_alive(b, x, b.input("lengths", ("B",), "int64"))
    x = b.add("Where", alive, x, b.const(torch.zeros(1)))
    y = write_layer(b, layer, x, Loop(alive, int8, given))
    b.output(y, "y", ("T", "B", layer.output_size))
    return b.model("sequence")


def write_alive(b: Builder, x: str, lengths: str) -> str:
    """[T, B, 1], true until each sequence ends."""
    zero, one = b.const(torch.tensor(0)), b.const(torch.tensor(1))
    steps = b.add("Squeeze", b.batch(x, 0), b.ints(0))
    t = b.add("Unsqueeze", b.add("Range", zero, steps, one), b.ints(1))
    return b.add("Unsqueeze", b.add("Less", t, lengths), b.ints(2))
