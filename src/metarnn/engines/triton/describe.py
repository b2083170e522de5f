"""How the work of a call is shared on a GPU, for people to read."""

from __future__ import annotations

import torch

from metarnn.engines.engine import Request
from metarnn.engines.plan import plan_loop
from metarnn.engines.triton.kernel import weight_size
from metarnn.engines.triton.loops import loop_kernels
from metarnn.engines.triton.program import Program
from metarnn.engines.triton.runtime import sm_count
from metarnn.engines.triton.scan import Scan
from metarnn.engines.triton.tiling import tile


def describe(request: Request) -> tuple[str, ...]:
    """A line for each kernel of a plain call (without masks): programs, weights, estimated time."""
    kernels = loop_kernels(plan_loop(request.cell)).of(request.gradient)
    device, size = torch.device(request.device), weight_size(request.dtype)
    lines: list[str] = []
    for which, kernel in kernels.items():
        if isinstance(kernel, Scan):
            lines.append(f"{which}: a scan, {kernel.steps} steps at a time")
        else:
            how = describe_kernel(kernel.program, request.batch, size, sm_count(device))
            lines.append(f"{which}: {how}")
    return tuple(lines)


def describe_kernel(program: Program, batch: int, weight_bytes: int, sms: int) -> str:
    """How programs share the work, where weights are, how values are exchanged, and the cost."""
    tiling = tile(program, batch, weight_bytes, sms)
    share, launches = tiling.share, tiling.launches(batch)
    parts = [
        f"{share.groups} groups of {share.programs} programs on {sms} SMs",
        f"{share.sequences} sequences a group",
    ]
    weights: dict[str, list[str]] = {}
    for group, chunks in zip(program.groups, tiling.chunks, strict=True):
        maps = " and ".join(dict.fromkeys(block.map for block in group.blocks))
        size = f"{maps} {tiling.weights(group) * weight_bytes / 1024:.0f} KB"
        where = "resident in shared memory" if chunks.resident else "streamed from L2"
        weights.setdefault(where, []).append(size + " (partial sums)" * chunks.partial)
    parts += [f"weights {where}: {', '.join(sizes)} a program" for where, sizes in weights.items()]
    exchanges = f"{program.exchanges} exchange{'s' * (program.exchanges != 1)} per step"
    parts.append(f"{exchanges} ({'polling' if tiling.publish else 'barrier'})")
    if launches > 1:
        parts.append(f"{launches} launches one after the other")
    return f"{', '.join(parts)}; estimated {tiling.cost:.1f} µs a step"
