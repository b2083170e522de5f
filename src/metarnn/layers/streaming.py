"""One step of a stack of layers at a time, each a single call of generated C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metarnn.cells import Cell
from metarnn.engines import ENGINES
from metarnn.engines.cpu import CpuEngine, Step
from metarnn.layers import edges

if TYPE_CHECKING:
    from metarnn.layers.recurrent import Recurrent


def compile_steps(cells: Sequence[Cell], dtype: torch.dtype) -> list[Step] | None:
    """The steps of a stack in generated C; None where that cannot be."""
    engine = ENGINES["cpu"]
    assert isinstance(engine, CpuEngine)
    steps = [engine.step(cell, dtype) for cell in cells]
    return None if None in steps else [step for step in steps if step is not None]


def step(compiled: Sequence[Step], layer: Recurrent, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    """One step of all layers: x [B, I] or [I], a state as of `Recurrent.forward`."""
    batched, count = x.dim() == 2, len(compiled)
    weights = layer.weights(0)
    like = next(iter(weights.values()), x)
    edges.matches("x", x, like)
    y = x if batched else x.unsqueeze(0)
    parts = edges.enter_state(state, layer.state_sizes, count, 1, y.shape[0], batched, like)
    finals = []
    for k, one in enumerate(compiled):
        rows = [part[k] for part in parts] if count > 1 else parts
        if one.cell.window > 1:
            *rows, past = rows
            seen = torch.cat([past.reshape(y.shape[0], -1), y], -1)
            out, final = one(layer.weights(k), seen, rows)
            final.append(seen[:, y.shape[1] :].unsqueeze(0))
        else:
            out, final = one(layer.weights(k) if k else weights, y, rows)
        y = out + y if layer.residual and k else out
        finals.append(final)
    final = finals[0]
    if count > 1:
        final = [torch.cat(part) for part in zip(*finals, strict=True)]
    if not batched:
        y, final = y.squeeze(0), [part.squeeze(1) for part in final]
    return y, final[0] if len(final) == 1 else tuple(final)
