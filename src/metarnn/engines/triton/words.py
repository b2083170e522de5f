"""How the work of a call is shared on a GPU, in words."""

from __future__ import annotations

import torch

from metarnn.engines.engine import Request
from metarnn.engines.plan import plan_loop
from metarnn.engines.triton.kernel import processors, weight_size
from metarnn.engines.triton.loops import loop_kernels
from metarnn.engines.triton.program import Program
from metarnn.engines.triton.scan import Scan
from metarnn.engines.triton.tiling import Chunks, tile


def describe(request: Request) -> tuple[str, ...]:
    """A line for each kernel of a plain call (without masks): programs, weights, estimated time."""
    kernels = loop_kernels(plan_loop(request.cell)).of(request.gradient)
    device, size = torch.device(request.device), weight_size(request.dtype)
    lines = []
    for which, kernel in kernels.items():
        if isinstance(kernel, Scan):
            lines.append(f"{which}: a scan, {kernel.steps} steps at a time")
        else:
            text = _kernel(kernel.program, request.batch, size, processors(device))
            lines.append(f"{which}: {text}")
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
