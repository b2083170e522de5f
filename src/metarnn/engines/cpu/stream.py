"""One time step on its own, for inputs that arrive one by one: the whole step in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import Cell, check, shapes
from metarnn.engines.cpu.kernel import Kernel
from metarnn.engines.cpu.program import emit
from metarnn.engines.plan import cell_name
from metarnn.graph import trace_cell
from metarnn.graph.derive import sink_slices


class Step:
    """A cell's step, compiled with nothing hoisted, for weights read as they lie."""

    def __init__(self, cell: Cell, dtype: torch.dtype) -> None:
        self.cell, self.dtype = cell, dtype
        graph = sink_slices(trace_cell(cell))
        self.kernel = Kernel(emit(graph, name=cell_name(cell), single=True), dtype)
        expected, given = shapes(cell), self.kernel.places
        # The places of all pointers, for weights with the name and shape of what belongs there.
        self.weights = []
        for (kind, name), place in given.items():
            if kind in ("vector", "weight", "bias"):
                name = name if kind == "vector" else f"{kind}_{name}"
                self.weights.append((place, name, expected[name]))
        self.parts = [
            (given["initial", str(k)], given["state", str(k)], width)
            for k, width in enumerate(cell.states)
        ]
        self.x, self.y = given.get(("input", "x")), given["output", "y"]

    def __call__(
        self, weights: Mapping[str, Tensor], x: Tensor, state: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """x [B, I], state [B, n] or [1, B, n] each -> output [B, O], state [1, B, n] each."""
        batch, dtype = x.shape[0], self.dtype
        frame = self.kernel.open(1, batch)
        pointers, held = frame.pointers, []  # held: copies, which must live as long as the call
        for place, name, shape in self.weights:
            weight = weights[name]
            if weight.shape != shape:  # generated code would read past the end
                check.refuse(f"{name}.shape", tuple(weight.shape), f"{list(shape)}")
            if weight.dtype != dtype or not weight.is_contiguous():
                held.append(weight := weight.to(dtype).contiguous())
            pointers[place] = weight.data_ptr()
        if self.x is not None:
            if not x.is_contiguous():
                x = x.contiguous()
            pointers[self.x] = x.data_ptr()
        y = x.new_empty(batch, self.cell.output_size)
        pointers[self.y] = y.data_ptr()
        after = []
        for (before, place, width), part in zip(self.parts, state, strict=True):
            if part.dtype != dtype or not part.is_contiguous():
                held.append(part := part.to(dtype).contiguous())
            pointers[before] = part.data_ptr()
            new = x.new_empty(1, batch, width)
            pointers[place] = new.data_ptr()
            after.append(new)
        self.kernel.run(frame)
        return y, after

    def __deepcopy__(self, memo: Any) -> Step:
        return self  # compiled code is shared, not copied

    def __reduce__(self) -> Any:
        return type(self), (self.cell, self.dtype)
