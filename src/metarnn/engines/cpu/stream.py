"""One time step on its own, for inputs that arrive one by one: the whole step in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from metarnn.cells import Cell, check, shapes
from metarnn.engines.cpu.emit import emit
from metarnn.engines.cpu.kernel import Kernel
from metarnn.graph import trace_cell
from metarnn.graph.derive import sink_slices


class Step:
    """A cell's step, compiled with nothing hoisted, for weights read as they lie."""

    def __init__(self, cell: Cell, dtype: torch.dtype) -> None:
        self.cell, self.dtype = cell, dtype
        graph = sink_slices(trace_cell(cell))
        self.kernel = Kernel(emit(graph, packed=False), dtype)
        self.slots = [2] * len(cell.states)
        # The name and shape of the weight behind each array that is one.
        expected = shapes(cell)
        names = {
            (kind, name): name if kind == "vector" else f"{kind}_{name}"
            for kind, name in self.kernel.program.arrays
            if kind in ("vector", "weight", "bias")
        }
        self.weights = [(key, name, expected[name]) for key, name in names.items()]
        self.parts = [
            (("initial", str(k)), ("state", str(k)), width) for k, width in enumerate(cell.states)
        ]

    def __call__(
        self, weights: Mapping[str, Tensor], x: Tensor, state: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """x [B, I], state [B, n] or [1, B, n] each -> output [B, O], state [1, B, n] each."""
        batch = x.shape[0]
        arrays = {}
        for key, name, shape in self.weights:
            if weights[name].shape != shape:  # generated code would read past the end
                check.refuse(f"{name}.shape", tuple(weights[name].shape), f"{list(shape)}")
            arrays[key] = _dense(weights[name])
        arrays["input", "x"] = _dense(x)
        arrays["output", "y"] = y = x.new_empty(batch, self.cell.output_size)
        after = []
        for (initial, both, width), part in zip(self.parts, state, strict=True):
            arrays[initial] = _dense(part)
            arrays[both] = new = x.new_empty(2, batch, width)
            after.append(new[1:])
        self.kernel(arrays, self.slots, 1, batch)
        return y, after

    def __deepcopy__(self, memo: Any) -> Step:
        return self  # compiled code is shared, not copied

    def __reduce__(self) -> Any:
        return type(self), (self.cell, self.dtype)


def _dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_contiguous() else tensor.contiguous()
