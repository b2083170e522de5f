"""How the work of a kernel is shared among programs: the cheapest way by the cost model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from metarnn.engines.triton.chunks import (
    STAGES,
    Chunks,
    Share,
    all_resident,
    choose_chunks,
    partial_candidates,
)
from metarnn.engines.triton.cost import step_cost
from metarnn.engines.triton.program import (
    TENSOR_CORE_MIN,
    ProductGroup,
    Program,
    next_power_of_2,
)

POLLED_BYTES = 256  # that a thread may poll at once: with more, registers are short
# Values of float32 that four warps have registers for: results of a product, one value of all units
# (a step has many), and partial sums with their weights.
FOUR_WARPS = 8192, 2048, 16384


@dataclass(frozen=True)
class Tiling:
    """How programs share the work, and how each does its part.

    `publish` is whether they exchange values through mailboxes, without barriers; `cost` is µs per
    step of the whole batch, by the model.
    """

    share: Share
    chunks: tuple[Chunks, ...]
    warps: int
    stages: int
    cost: float
    publish: bool = False

    def weights(self, group: ProductGroup) -> int:
        """How many weights of a product a program multiplies by, with padding."""
        chunks, share = self.chunks[group.number], self.share
        return chunks.inner * (share.own_inner(group) if chunks.partial else share.columns(group))

    def partial_sums(self, group: ProductGroup) -> int:
        """How many partial sums of a product there are, those of two steps."""
        share, receivers = self.share, 1 if group.replicated else self.share.programs
        tile = share.block_b * share.columns(group)
        return 2 * share.groups * receivers * share.programs * tile

    def launches(self, batch: int) -> int:
        return -(-batch // (self.share.sequences * self.share.groups))

    def constants(self, program: Program) -> dict[str, int | bool]:
        """The kernel's parameters that say how the work is shared."""
        share = self.share
        constants: dict[str, int | bool] = {
            "PROGRAMS": share.programs,
            "BLOCK_B": share.block_b,
            "SEQUENCES": share.sequences,
            "PUBLISH": self.publish,
            **{f"UNITS_{n}": units for n, units in share.units.items()},
        }
        for group, c in zip(program.groups, self.chunks, strict=True):
            values = c.chunk, c.inner, c.resident, c.parts, c.partial
            names = "CHUNK", "INNER", "RESIDENT", "PARTS", "PARTIAL"
            constants |= zip(map(group.constant, names), values, strict=True)
        return constants


def tile(
    program: Program, batch: int, weight_bytes: int, sm_count: int, budget: float = 1.0
) -> Tiling:
    """The cheapest way to share the work, with weights of so many bytes.

    With one SM a single program a group does everything, which needs no barrier. `budget` is the
    part of shared memory to count on.
    """
    if sm_count == 1 or not (program.synchronizes or program.groups):
        return _independent(program, batch, sm_count)
    widest = max(program.widths)
    tilings: list[Tiling] = []
    for sequences in (4, 8, 16, 32, 64, 128):
        if sequences > max(TENSOR_CORE_MIN, next_power_of_2(batch)):
            break
        for units in (8, 16, 32, 64, 128):
            programs = -(-widest // units)
            if programs <= sm_count:
                groups = min(-(-batch // sequences), sm_count // programs)
                share = share_work(program, programs, groups, sequences)
                for partial, publish in product((False, True), (False, True)):
                    tiling = shared(program, batch, weight_bytes, share, budget, partial, publish)
                    tilings += [tiling] if tiling else []
    if not tilings:
        raise ValueError(f"rows of {widest} units are too wide for {sm_count} SMs")
    return min(tilings, key=lambda tiling: tiling.cost)


def share_work(program: Program, programs: int, groups: int, sequences: int) -> Share:
    """Each program's share of every width; a product needs eight columns at least."""
    blocks: dict[int, int] = {}
    for g in program.groups:
        if not g.replicated:
            blocks[g.width] = min(blocks.get(g.width, 8), g.padded_blocks)
    units = {n: max(next_power_of_2(-(-n // programs)), 8 // blocks.get(n, 8))
             for n in program.widths}  # fmt: skip
    return Share(programs, groups, sequences, max(TENSOR_CORE_MIN, sequences), units)


def shared(
    program: Program,
    batch: int,
    weight_bytes: int,
    share: Share,
    budget: float,
    partial: bool,
    publish: bool = False,
) -> Tiling | None:
    """The work shared so. None: what is published could not be polled at once."""
    results = max((share.block_b * share.columns(g) for g in program.groups), default=0)
    sums = partial_candidates(program.groups, share, weight_bytes) if partial else []
    multiplied = max((share.own_inner(g) * share.all_columns(g) for g in sums), default=0)
    copies = 2 if any(g.replicated for g in program.groups) else 1
    values = share.block_b * max(share.units.values()) * copies
    pairs = zip((results, values, multiplied), FOUR_WARPS, strict=True)
    warps = 8 if any(count >= most for count, most in pairs) else 4
    chunks = choose_chunks(program.groups, share, weight_bytes, budget, warps, sums, publish)
    if publish and not _publishable(program, chunks, share, weight_bytes, warps):
        return None
    cost = step_cost(program, share, chunks, weight_bytes, warps, publish)
    tiling = Tiling(share, chunks, warps, STAGES, cost, publish)
    return replace(tiling, cost=cost * tiling.launches(batch))


def _publishable(
    program: Program, chunks: tuple[Chunks, ...], share: Share, weight_bytes: int, warps: int
) -> bool:
    """Whether all that is published can be polled at once, and each element by one thread: of
    several that read the same, Triton would ask one alone whether it has come.

    Every program publishes something for all others at every step: so they know what it has read.
    Weights in two parts are better streamed while others are awaited.
    """
    polled = [(g, c) for g, c in zip(program.groups, chunks, strict=True) if g.published_width]
    threads, last = 32 * warps, share.programs - 1
    of_all_programs = any(
        c.partial
        or (g.reads_all_units and last * share.units[g.published_width] < g.published_width)
        for g, c in polled
    )
    return last > 0 and of_all_programs and weight_bytes <= 4 and all(
        share.block_b * share.columns(g) >= threads if c.partial
        else c.resident and share.block_b * c.inner * weight_bytes <= POLLED_BYTES * threads
        for g, c in polled
    )  # fmt: skip


def _independent(program: Program, batch: int, sm_count: int) -> Tiling:
    """Where no program waits for another, many small ones do best."""
    if sm_count == 1:
        units = {n: next_power_of_2(n) for n in program.widths}
        share = Share(1, 1, TENSOR_CORE_MIN, TENSOR_CORE_MIN, units)
        return Tiling(share, all_resident(program.groups), 4, 1, 0.0)
    programs = 1 if program.rows else -(-max(program.widths, default=1) // 64)
    share = share_work(program, programs, -(-batch // 4), 4)
    return Tiling(share._replace(block_b=4), (), 4, 1, 0.0)
