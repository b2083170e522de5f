"""A model of what a step costs, in µs: fitted to kernels measured on an H200."""

from __future__ import annotations

from metarnn.engines.triton.chunks import Chunks, Share
from metarnn.engines.triton.program import ProductGroup, Program

# Fitted to 240 tilings of an LSTM.
BARRIER = 1.7  # µs, with what programs wait for
BANDWIDTH = 60e3  # bytes a µs that L2 gives one program
EXCHANGED, STREAMED = 1.3, 0.9  # what a byte of others' values and a byte of weights cost there
LATENCY = 1e-3  # µs for each element that a product sums over, besides
SPEED = {2: 3e6, 4: 1.5e6, 8: 0.5e6}  # operations a µs of one program, by the bytes of a weight
EIGHT_WARPS = 0.2  # µs: they wait for one another more often than four
WGMMA_ROWS = 64  # from so many on tensor cores take a product at twice the speed
PROGRAM = 0.002  # µs for each program that runs
SPILLED = 16384  # results of a product that no longer fit into registers
# Values that are published in place of a barrier, fitted to 200 tilings of three cells: what it
# costs to poll them; more for each byte of partial sums, which all programs poll at the same time.
# Then a product must be quick: warps that have no results of their own cost IDLE, and so many
# columns more than one WIDE.
POLLING, CROWD, IDLE, WIDE = 1.2, 0.15e-6, 0.2, 0.1 / 64
SEQUENCE = 0.4  # µs for one sequence of a segment over rows
# Partial sums, fitted to 30 tilings of an LSTM's backward pass, and taken for slower by a third, as
# the cost of products that read what others have.
PARTIAL_SLOWER, PARTIAL_BYTE, PARTIAL_PROGRAM, PARTIAL_SAVED = 1.3, 1.5, 0.01, 0.4
SECTOR, NARROW = 32, 0.3  # bytes that memory writes at a time; µs where a program writes fewer
CACHE, MEMORY = 32e6, 4e6  # bytes of partial sums that L2 has room for; else bytes a µs


def step_cost(
    program: Program,
    share: Share,
    chunks: tuple[Chunks, ...],
    weight_bytes: int,
    warps: int,
    publish: bool,
) -> float:
    """µs for a step of all groups of programs that run at once."""
    cost = (POLLING if publish else BARRIER) * program.exchanges
    cost += PROGRAM * share.programs * share.groups
    cost += EIGHT_WARPS if warps == 8 else 0
    for group, c in zip(program.groups, chunks, strict=True):
        columns = share.columns(group)
        polled = publish and group.published_width > 0
        if c.partial:
            cost += _partial_cost(group, c, share, weight_bytes, publish)
        else:
            cost += _cost(group, c, share, weight_bytes, 4 if polled else weight_bytes)
            if polled and group.fused_with is None:
                idle = share.block_b * columns < 128 * warps
                cost += IDLE if idle else max(0, columns - 64) * WIDE
    if program.rows:
        cost += SEQUENCE * -(-share.sequences // share.programs)
    most = max((share.block_b * share.columns(g) for g in program.groups), default=0)
    return cost + (most / 1000 if most > SPILLED else 0)


def _cost(group: ProductGroup, c: Chunks, share: Share, weight_bytes: int, bytes: int) -> float:
    """Of a product whose argument's elements have so many bytes."""
    loaded = group.in_registers or group.fused_with is not None
    rows, columns = share.block_b, share.columns(group)
    moved = 0 if loaded else EXCHANGED * share.sequences * c.inner * bytes
    moved += 0 if c.resident else STREAMED * c.inner * columns * weight_bytes
    # Two products of the same pieces are slow until the tensor cores take them at full speed.
    slow = not loaded or (group.fused_with is not None and not c.resident and rows < WGMMA_ROWS)
    cost = moved / BANDWIDTH + (c.inner * LATENCY if slow else 0)
    speed = SPEED[weight_bytes] * (2 if rows >= WGMMA_ROWS else 1)
    return cost + 2 * rows * c.inner * columns / speed


def _partial_cost(
    group: ProductGroup, c: Chunks, share: Share, weight_bytes: int, publish: bool
) -> float:
    rows, own, scattered = share.block_b, share.own_inner(group), share.all_columns(group)
    moved = share.sequences * (scattered + share.programs * share.columns(group)) * 4
    cost = PARTIAL_BYTE * moved / BANDWIDTH + PARTIAL_PROGRAM * share.programs - PARTIAL_SAVED
    cost += 0 if c.resident else STREAMED * c.inner * own * weight_bytes / BANDWIDTH
    cost += 2 * rows * c.inner * own / (SPEED[weight_bytes] / 2)
    narrow = share.units[group.tile_width] * weight_bytes < SECTOR
    cost += NARROW if not publish and narrow else 0
    bytes = 2 * share.groups * share.sequences * share.programs * scattered * 4
    cost = PARTIAL_SLOWER * max(0.0, cost) + (CROWD * bytes / 2 if publish else 0)
    return cost + (0 if bytes <= CACHE else bytes / MEMORY)
