"""One step of a stack of layers at a time, each a single call of generated C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metarnn.cells import Cell, State
from metarnn.engines import cpu
from metarnn.layers.edges import Inputs

if TYPE_CHECKING:
    from metarnn.layers.recurrent import Recurrent


def compile_steps(cells: Sequence[Cell], dtype: torch.dtype) -> list[cpu.Step] | None:
    """The steps of a stack in generated C; None where that cannot be."""
    if dtype not in (torch.float32, torch.float64) or any(map(cpu.obstacle, cells)):
        return None
    try:
        return [cpu.Step(cell, dtype) for cell in cells]
    except cpu.CannotCompile as error:
        cpu.give_up(error)
        return None


def step(
    compiled: Sequence[cpu.Step], layer: Recurrent, call: Inputs, state: State
) -> tuple[Tensor, Any]:
    """One step of all layers: `call` holds x [1, B, I], `state` parts [layers, B, n]."""
    y, finals = call.x[0], []
    for k, one in enumerate(compiled):
        rows = state if len(compiled) == 1 else [part[k] for part in state]
        out, final = one(layer.weights(k), y, rows)
        y = out + y if layer.residual and k else out
        finals.append(final)
    final = finals[0]
    if len(finals) > 1:
        final = [torch.cat(part) for part in zip(*finals, strict=True)]
    if not call.batched:
        y, final = y.squeeze(0), [part.squeeze(1) for part in final]
    return y, final[0] if len(final) == 1 else tuple(final)
