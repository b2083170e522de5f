"""How the work of a call is shared on a GPU, in words."""

from __future__ import annotations

import torch

from metarnn.cells import Cell
from metarnn.engines.plan import plan_cell
from metarnn.engines.triton.fused import loop
from metarnn.engines.triton.halves import worthwhile
from metarnn.engines.triton.kernel import processors, weight_size
from metarnn.engines.triton.program import Program
from metarnn.engines.triton.scan import Scan
from metarnn.engines.triton.tiling import Chunks, tile


def describe(
    cell: Cell,
    batch: int,
    dot: torch.dtype,
    device: torch.device,
    *,
    gradient: bool = True,
    bidirectional: bool = False,
) -> tuple[str, ...]:
    """A line for each kernel of a plain call (without masks): programs, what is where, the cost."""
    made, available, lines = loop(plan_cell(cell, (), (), ())), processors(device), []
    if bidirectional and worthwhile(cell, batch, dot, available):
        available //= 2
        lines.append(f"both directions at the same time, each on {available} processors")
    kernels = {"forward": made.train if gradient else made.infer}
    kernels |= {"backward": made.reverse} if gradient else {}
    for name, kernel in kernels.items():
        if isinstance(kernel, Scan):
            lines.append(f"{name}: a scan, {kernel.steps} steps at a time")
        else:
            lines.append(f"{name}: {_kernel(kernel.program, batch, weight_size(dot), available)}")
    return tuple(lines)


def _kernel(program: Program, batch: int, size: int, available: int) -> str:
    tiling = tile(program, batch, size, available)
    launches = -(-batch // (tiling.sequences * tiling.groups))
    shared = f"{tiling.groups} groups of {tiling.programs} programs on {available} processors"
    parts = [f"{shared}, {tiling.sequences} sequences a group"]
    for group, chunks in zip(program.groups, tiling.chunks, strict=True):
        weights = " and ".join(dict.fromkeys(block.map for block in group.blocks))
        bytes = tiling.weights(group) * size
        parts.append(f"{_place(chunks)} {weights}, {bytes / 1024:.0f} KB a program")
        if chunks.partial:
            parts.append("of which each hands out partial sums")
    how = "waits for numbers that are told" if tiling.told else "meetings"
    parts.append(f"{program.barriers} {how} a step")
    if launches > 1:
        parts.append(f"{launches} launches one after the other")
    return f"{', '.join(parts)}; {tiling.cost:.1f} µs a step by the cost model"


def _place(chunks: Chunks) -> str:
    if chunks.held:
        return "on chip:"
    return f"streamed from the second-level cache, {chunks.chunk} columns at a time:"
