"""How a program cuts its products into pieces that fit on the chip."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from metarnn.engines.triton.program import (
    TENSOR_CORE_MIN,
    ProductGroup,
    next_power_of_2,
    padded,
)

SHARED_MEMORY = 200 << 10  # bytes to count on, of the 227 KB that a program may have
STAGES = 3  # pieces of a product that are loaded ahead
MIN_CHUNK = 64  # elements of a piece that there should be shared memory for
# Elements of float32 results that a thread has registers for: of partial sums, and of partial sums
# that are added up at once.
MAX_RESULTS, MAX_REDUCED = 64, 32


@dataclass(frozen=True)
class Chunks:
    """How a program computes a product: in pieces of `chunk` of its inner dimension.

    Attributes:
        chunk: All of the inner dimension if the weights are resident.
        inner: The inner dimension, padded to whole pieces.
        resident: Whether the weights stay on the chip for all steps; else they are streamed.
        parts: A piece is cut into so many, whose products different warps compute.
        partial: Whether each program multiplies its own part of the argument, for all programs.
            Then `chunk` and `inner` are of the outer dimension, and the partial sums of `parts`
            programs are added up at once.
    """

    chunk: int
    inner: int
    resident: bool
    parts: int = 1
    partial: bool = False


class Share(NamedTuple):
    """The part of the work that each program has.

    `groups` of `programs` run at once; those of a group share the units of `sequences` sequences.
    """

    programs: int
    groups: int
    sequences: int
    block_b: int  # rows of a tile: as many as sequences, but as tensor cores multiply at least
    units: Mapping[int, int]  # of each width

    def columns(self, group: ProductGroup) -> int:
        """How many elements of a product's row a program computes, with padding."""
        units = padded(group.width) if group.replicated else self.units[group.width]
        return units * group.padded_blocks

    def all_columns(self, group: ProductGroup) -> int:
        """How many elements of a product's row the programs of a group need together."""
        return self.columns(group) * (1 if group.replicated else self.programs)

    def own_inner(self, group: ProductGroup) -> int:
        """How many elements of a product's argument a program has itself, with padding."""
        return self.units[group.tile_width] * next_power_of_2(group.partial_tiles)


def all_resident(groups: tuple[ProductGroup, ...]) -> tuple[Chunks, ...]:
    """Every product at once."""
    return tuple(Chunks(padded(g.inner), padded(g.inner), True) for g in groups)


def partial_candidates(
    groups: tuple[ProductGroup, ...], share: Share, weight_bytes: int
) -> list[ProductGroup]:
    """The products of which each program may multiply its own part of the argument, for all.

    Partial sums are written and read, in four bytes each: at most twice what would be read of the
    argument. Of more than 16 sequences they are too many, and of few units most would be padding.
    """
    candidates = []
    for g in groups:
        lead = g if g.fused_with is None else groups[g.fused_with]
        columns, all_columns = share.columns(lead), share.all_columns(lead)
        few = 4 * (all_columns + share.programs * columns) <= 2 * weight_bytes * lead.inner
        filled = all_columns <= 2 * padded(lead.width * lead.padded_blocks)
        short = share.block_b == TENSOR_CORE_MIN
        if g.partial_tiles and share.own_inner(g) >= TENSOR_CORE_MIN and short and few and filled:
            candidates.append(g)
    return candidates


def choose_chunks(
    groups: tuple[ProductGroup, ...],
    share: Share,
    weight_bytes: int,
    budget: float,
    warps: int,
    partial: Collection[ProductGroup],
    publish: bool,
) -> tuple[Chunks, ...]:
    """The pieces of all products; fused ones have the same, or all are `partial`.

    On the chip are all resident weights, and what one product at a time loads.
    """
    rows, columns = share.block_b, [share.columns(g) for g in groups]
    chosen = {
        g.number: chunks
        for g, chunks in zip(groups, all_resident(groups), strict=True)
        if g.in_registers
    }
    free, in_flight = int(budget * SHARED_MEMORY), 0
    for g in sorted(partial, key=lambda g: -share.own_inner(g) * share.all_columns(g)):
        chunks = _partial(g, share, weight_bytes, free, in_flight, warps)
        if chunks is None:
            return choose_chunks(groups, share, weight_bytes, budget, warps, (), publish)
        chosen[g.number] = chunks
        taken = share.own_inner(g) * weight_bytes * chunks.chunk
        free -= taken if chunks.resident else 0
        streamed = 0 if chunks.resident else STAGES * taken
        in_flight = max(in_flight, rows * chunks.chunk * 4 + streamed)
    others = [g for g in groups if g.number not in chosen]
    fused_columns = {g.number: columns[g.number] for g in others if g.fused_with is None}
    for g in others:
        if g.fused_with is not None:
            fused_columns[g.fused_with] += columns[g.number]
    order = sorted(fused_columns, key=lambda j: -fused_columns[j] * groups[j].inner)
    for place, j in enumerate(order):
        inner, n = groups[j].inner, fused_columns[j]
        reserve = (STAGES * MIN_CHUNK * (rows + fused_columns[i]) for i in order[place + 1 :])
        argument = padded(inner) * rows * weight_bytes
        beside = max(in_flight, argument, max(reserve, default=0) * weight_bytes)
        at_once = _worth_holding(inner, weight_bytes) or (publish and groups[j].published_width > 0)
        weights = padded(inner) * n * weight_bytes
        if at_once and weights + beside <= free:
            chunks = Chunks(padded(inner), padded(inner), True)
            free, in_flight = free - weights, max(in_flight, argument)
        else:
            share_of_free = free if len(order) == 1 else free // 2
            chunks = _streamed(inner, n, rows, weight_bytes, share_of_free)
            in_flight = max(in_flight, STAGES * chunks.chunk * (rows + n) * weight_bytes)
        chosen[j] = _in_parts(chunks, rows * columns[j], weight_bytes, warps)
    for g in others:
        chosen.setdefault(g.number, chosen[g.number if g.fused_with is None else g.fused_with])
    return tuple(chosen[g.number] for g in groups)


def _partial(
    group: ProductGroup, share: Share, weight_bytes: int, free: int, in_flight: int, warps: int
) -> Chunks | None:
    """All partial sums at once, if the weights can be resident and the sums be in registers.

    Another product loads up to `in_flight` of the `free` bytes. None if there is not even room for
    the sums that one program needs.
    """
    own, needed, rows = share.own_inner(group), share.all_columns(group), share.block_b
    columns, threads = share.columns(group), 32 * warps
    parts = max(1, MAX_REDUCED * threads // (rows * columns))
    at_once, most = padded(needed), MAX_RESULTS * threads // rows
    taken = at_once * own * weight_bytes + max(in_flight, at_once * rows * 4)
    if at_once <= most and taken <= free and at_once <= 1.4 * max(TENSOR_CORE_MIN, needed):
        return Chunks(at_once, at_once, True, parts, True)

    def fits(chunk: int) -> bool:
        return chunk * (STAGES * own * weight_bytes + rows * 4) <= free

    chunk = min(at_once, most)
    while chunk > max(TENSOR_CORE_MIN, columns) and (
        not fits(chunk) or -needed % chunk > 0.1 * needed
    ):
        chunk //= 2
    if chunk < columns or not fits(chunk):
        return None
    return Chunks(chunk, -(-needed // chunk) * chunk, False, parts, True)


def _worth_holding(inner: int, weight_bytes: int) -> bool:
    """Longer rows come in too late to be multiplied at once; padding is work for nothing."""
    length = padded(inner)
    return length * weight_bytes * weight_bytes <= 2048 and length <= 1.1 * max(
        TENSOR_CORE_MIN, inner
    )


def _streamed(inner: int, columns: int, rows: int, weight_bytes: int, free: int) -> Chunks:
    chunk = (512 if rows <= 32 and columns <= 64 else 256) // weight_bytes
    if weight_bytes == 4 and rows * columns == 256:
        chunk *= 2  # a part for each of four warps
    while chunk > TENSOR_CORE_MIN and STAGES * chunk * (rows + columns) * weight_bytes > free:
        chunk //= 2
    chunk = min(chunk, padded(inner))
    return Chunks(chunk, -(-inner // chunk) * chunk, False)


def _in_parts(chunks: Chunks, results: int, weight_bytes: int, warps: int) -> Chunks:
    """Parts for the warps that would have few results of their own: one computes 16 by 8.

    Products of two bytes are too quick for that to pay; of four, it saves a tenth of the time, and
    up to a fifth where two warps have results: a part for each of four is quicker, too.
    """
    if weight_bytes == 2:
        return chunks
    parts = warps if results <= 256 else max(1, warps * 128 // results)
    return replace(chunks, parts=min(parts, chunks.chunk // TENSOR_CORE_MIN))
