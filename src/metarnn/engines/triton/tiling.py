"""How the work of a kernel is shared among programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from metarnn.engines.triton.program import SHORTEST, Group, Program, power, short

# Fitted to 240 tilings of an LSTM measured on an H200: a barrier with what it waits for costs about
# 1.7 µs; the second-level cache gives a program 60 bytes a nanosecond, a little less of what other
# programs have just written; a product takes 1 ns for each number summed over besides.
BARRIER, BANDWIDTH, LATENCY = 1.7, 60e3, 1e-3
EXCHANGED, STREAMED = 1.3, 0.9  # what a byte of inputs and a byte of weights cost
SPEED = {2: 3e6, 4: 1.5e6, 8: 0.5e6}  # operations a µs of one program, by the size of a weight
ROW = 0.4  # µs for one row of a segment over rows
SHARED = 200 << 10
CACHE, MEMORY = 32e6, 4e6  # bytes of partial sums that caches have room for; else bytes a µs
SECTOR = 32  # bytes that memory writes at a time
# In place of a barrier, numbers that are told: what it costs to wait for them, µs, and more for
# each byte of partial sums, which all programs look for at the same time. Then a product must be
# quick: warps that have no results of their own cost IDLE, and so many columns more than one WIDE.
# Fitted to 200 tilings of three cells.
TOLD, CROWD, IDLE, WIDE = 1.2, 0.15e-6, 0.2, 0.1 / 64
WHOLE = 64  # rows from which on the tensor cores take a product whole
EIGHT = 0.2  # what eight warps cost, which wait for one another more often than four
WIDEST = 256  # bytes that a thread may look for at once: with more, registers are short
COPIES = 3  # pieces of a product that are on their way at once
LEAST = 64  # numbers of a piece that there should be room for


@dataclass(frozen=True)
class Chunks:
    """A product's inner dimension: padded to `inner`, in pieces of `chunk`; all at once if held.

    A piece is cut into `parts`, whose products different warps compute.

    If `partial`, each program multiplies its own part of the inner dimension, for all. Then `inner`
    and `chunk` are of the outer one, and `parts` is how many programs' sums are added up at once.
    """

    chunk: int
    inner: int
    held: bool
    parts: int = 1
    partial: bool = False


@dataclass(frozen=True)
class Tiling:
    """`programs` of a group share the units of some sequences; `groups` of them run at once."""

    programs: int
    groups: int
    sequences: int
    rows: int  # of a tile: as many as sequences, but a tensor core multiplies 16 at least
    units: dict[int, int]  # of each width, a program's share
    chunks: tuple[Chunks, ...]
    warps: int
    stages: int
    cost: float  # µs a step, as far as the model knows
    told: bool = False  # whether programs tell one another numbers and do not meet

    def columns(self, group: Group) -> int:
        """How many numbers of a product's row a program computes, with padding."""
        return _columns(group, self.units)

    def weights(self, group: Group) -> int:
        """How many weights of a product a program multiplies by, with padding."""
        chunks = self.chunks[group.number]
        own = _own(group, self.units) if chunks.partial else self.columns(group)
        return chunks.inner * own

    def sums(self, group: Group) -> int:
        """How many partial sums of a product there are, those of two steps."""
        takers = 1 if group.whole else self.programs
        return 2 * self.groups * takers * self.programs * self.rows * self.columns(group)

    @property
    def constants(self) -> dict[str, int | bool]:
        """The kernel's parameters."""
        found: dict[str, int | bool] = {"P": self.programs, "BB": self.rows}
        found |= {"SEQUENCES": self.sequences, "TOLD": self.told}
        found |= {f"U{n}": u for n, u in self.units.items()}
        for j, c in enumerate(self.chunks):
            found |= {f"CHUNK{j}": c.chunk, f"INNER{j}": c.inner, f"HELD{j}": c.held}
            found |= {f"PARTS{j}": c.parts, f"PARTIAL{j}": c.partial}
        return found


def tile(program: Program, batch: int, size: int, processors: int, room: float = 1.0) -> Tiling:
    """The cheapest way to share the work; `size` is that of a weight in bytes.

    With one processor a single program a group does everything, which needs no barrier. `room`
    is the part of on-chip memory to count on.
    """
    if processors == 1 or not (program.meets or program.groups):
        return _independent(program, batch, processors)
    widest = max(program.widths)
    found = []
    for sequences in (4, 8, 16, 32, 64, 128):
        if sequences > max(16, power(batch)):
            break
        for units in (8, 16, 32, 64, 128):
            programs = -(-widest // units)
            if programs <= processors:
                groups = min(-(-batch // sequences), processors // programs)
                share = _Share(programs, groups, sequences, _units(program, programs))
                for partial, told in product((False, True), (False, True)):
                    tiling = _shared(program, batch, size, share, room, partial, told)
                    found += [tiling] if tiling else []
    if not found:
        raise ValueError(f"rows of {widest} numbers are too wide for {processors} processors")
    return min(found, key=lambda tiling: tiling.cost)


class _Share(NamedTuple):
    """What each program has of the work."""

    programs: int
    groups: int
    sequences: int
    units: dict[int, int]

    @property
    def rows(self) -> int:
        return max(SHORTEST, self.sequences)

    def own(self, group: Group) -> int:
        """How many numbers of a product's argument a program has itself, with padding."""
        return _own(group, self.units)

    def wanted(self, group: Group) -> int:
        """How many numbers of a product's row the programs of a group need together."""
        return _columns(group, self.units) * (1 if group.whole else self.programs)


def _summed(groups: tuple[Group, ...], share: _Share, size: int) -> list[Group]:
    """The products of which each program may multiply its own part of the argument, for all.

    Sums are written and read, in four bytes each: at most twice what would be read of the argument.
    Of more than 16 sequences they are too many, and of few units most would be padding.
    """
    found = []
    for g in groups:
        lead = g if g.beside is None else groups[g.beside]
        wanted, columns = share.wanted(lead), _columns(lead, share.units)
        few = 4 * (wanted + share.programs * columns) <= 2 * size * lead.inner
        filled = wanted <= 2 * short(lead.width * lead.padded)
        if g.tiles and share.own(g) >= SHORTEST and share.rows == 16 and few and filled:
            found.append(g)
    return found


def _shared(
    program: Program,
    batch: int,
    size: int,
    share: _Share,
    room: float,
    partial: bool,
    told: bool = False,
) -> Tiling | None:
    """The work shared so. None: what is told would have to be read in pieces."""
    programs, groups, sequences, units = share
    rows, columns = share.rows, [_columns(g, units) for g in program.groups]
    most = max((rows * n for n in columns), default=0)
    summed = _summed(program.groups, share, size) if partial else []
    multiplied = max((share.own(g) * share.wanted(g) for g in summed), default=0)
    # Many values of many units at once would not fit into the registers of four warps.
    values = rows * max(units.values()) * (2 if any(g.whole for g in program.groups) else 1)
    warps = 8 if most >= 8192 or values >= 2048 or multiplied >= 16384 else 4
    chunks = _all_chunks(program.groups, share, size, room, warps, summed, told)
    if told and not _tellable(program, chunks, share, size, warps):
        return None
    cost = (TOLD if told else BARRIER) * program.barriers + 0.002 * programs * groups
    cost += EIGHT if warps == 8 else 0
    for g, n, c in zip(program.groups, columns, chunks, strict=True):
        if c.partial:
            cost += _partial_cost(g, c, share, size, told)
        else:
            cost += _cost(g, n, c, share, size, 4 if told and g.told else size)
            if told and g.told and g.beside is None:
                cost += IDLE if rows * n < 128 * warps else max(0, n - 64) * WIDE
    if program.rows:
        cost += ROW * -(-sequences // programs)
    if most > 16384:
        cost += most / 1000  # results that no longer fit into registers
    cost *= -(-batch // (sequences * groups))  # one launch after the other
    return Tiling(programs, groups, sequences, rows, units, chunks, warps, COPIES, cost, told)


def _tellable(
    program: Program, chunks: tuple[Chunks, ...], share: _Share, size: int, warps: int
) -> bool:
    """Whether all that is told can be read at once, and each number by one thread: of several that
    read the same, Triton would ask one alone whether it has come.

    Every program tells all others something at every step: so they know what it has read. Weights
    that are two numbers each are better streamed while others are awaited.
    """
    read = [(g, c) for g, c in zip(program.groups, chunks, strict=True) if g.told]
    rows, threads, last = share.rows, 32 * warps, share.programs - 1
    heard_of_all = any(
        c.partial or (g.of_all and last * share.units[g.told] < g.told) for g, c in read
    )
    return last > 0 and heard_of_all and size <= 4 and all(
        rows * _columns(g, share.units) >= threads if c.partial
        else c.held and rows * c.inner * size <= WIDEST * threads
        for g, c in read
    )  # fmt: skip


def _cost(group: Group, columns: int, c: Chunks, share: _Share, size: int, exchanged: int) -> float:
    """What a product costs that reads numbers of so many bytes that are `exchanged`."""
    there = group.at_hand or group.beside is not None  # what it reads, somebody has loaded
    rows = share.rows
    moved = 0 if there else EXCHANGED * share.sequences * c.inner * exchanged
    moved += 0 if c.held else STREAMED * c.inner * columns * size
    # Two products of the same pieces are slow until the tensor cores take them whole.
    slow = not there or (group.beside is not None and not c.held and rows < WHOLE)
    found = moved / BANDWIDTH + (c.inner * LATENCY if slow else 0)
    return found + 2 * rows * c.inner * columns / (SPEED[size] * (2 if rows >= WHOLE else 1))


def _partial_cost(group: Group, c: Chunks, share: _Share, size: int, told: bool) -> float:
    """Fitted to 30 tilings of an LSTM's way back, and taken for slower by a third, as the cost of
    products that read what others have."""
    rows, own, given = share.rows, share.own(group), share.wanted(group)
    moved = share.sequences * (given + share.programs * _columns(group, share.units)) * 4
    found = 1.5 * moved / BANDWIDTH + 0.01 * share.programs - 0.4
    found += 0 if c.held else STREAMED * c.inner * own * size / BANDWIDTH
    found += 2 * rows * c.inner * own / (SPEED[size] / 2)
    found += 0.3 if not told and share.units[group.source] * size < SECTOR else 0
    there = 2 * share.groups * share.sequences * share.programs * given * 4
    found = 1.3 * max(0.0, found) + (CROWD * there / 2 if told else 0)
    return found + (0 if there <= CACHE else there / MEMORY)


def _units(program: Program, programs: int) -> dict[int, int]:
    """Each program's share of every width; a product needs eight columns at least."""
    shared = [g for g in program.groups if not g.whole]
    blocks = {n: min((g.padded for g in shared if g.width == n), default=8)
              for n in program.widths}  # fmt: skip
    return {n: max(power(-(-n // programs)), 8 // min(8, blocks[n])) for n in program.widths}


def _own(group: Group, units: dict[int, int]) -> int:
    return units[group.source] * power(group.tiles)


def _columns(group: Group, units: dict[int, int]) -> int:
    return (short(group.width) if group.whole else units[group.width]) * group.padded


def _all_chunks(
    groups: tuple[Group, ...],
    share: _Share,
    size: int,
    room: float,
    warps: int,
    summed: list[Group],
    told: bool,
) -> tuple[Chunks, ...]:
    """The pieces of all products; those that are computed together have the same, or all hand out
    sums.

    On the chip are all weights that are held, and what one product has on its way.
    """
    rows, columns = share.rows, [_columns(g, share.units) for g in groups]
    found = {g.number: Chunks(short(g.inner), short(g.inner), True) for g in groups if g.at_hand}
    left, moving = int(room * SHARED), 0
    for g in sorted(summed, key=lambda g: -share.own(g) * share.wanted(g)):
        chunks = _partial(g, share, size, left, moving, warps)
        if chunks is None:
            return _all_chunks(groups, share, size, room, warps, [], told)
        found[g.number] = chunks
        taken = share.own(g) * size * chunks.chunk
        left -= taken if chunks.held else 0
        moving = max(moving, rows * chunks.chunk * 4 + (0 if chunks.held else COPIES * taken))
    others = [g for g in groups if g.number not in found]
    together = {g.number: columns[g.number] for g in others if g.beside is None}
    for g in others:
        if g.beside is not None:
            together[g.beside] += columns[g.number]
    order = sorted(together, key=lambda j: -together[j] * groups[j].inner)
    for place, j in enumerate(order):
        inner, n = groups[j].inner, together[j]
        whole = short(inner)
        later = max((COPIES * LEAST * (rows + together[i]) for i in order[place + 1 :]), default=0)
        beside = max(moving, whole * rows * size, later * size)
        quick = _holdable(inner, size) or (told and groups[j].told > 0)
        if quick and whole * n * size + beside <= left:
            chunks = Chunks(whole, whole, True)
            left, moving = left - whole * n * size, max(moving, whole * rows * size)
        else:
            chunks = _streamed(inner, n, rows, size, left if len(order) == 1 else left // 2)
            moving = max(moving, COPIES * chunks.chunk * (rows + n) * size)
        found[j] = _parted(chunks, rows * columns[j], size, warps)
    for g in others:
        found.setdefault(g.number, found[g.number if g.beside is None else g.beside])
    return tuple(found[g.number] for g in groups)


def _partial(
    group: Group, share: _Share, size: int, left: int, moving: int, warps: int
) -> Chunks | None:
    """All sums of a product at once, if its weights can be held and its sums be in registers.

    Of what is left on the chip, another product has up to `moving` bytes on its way. None if not
    even those sums fit that one program needs.
    """
    own, wanted, rows = share.own(group), share.wanted(group), share.rows
    columns = _columns(group, share.units)
    at_once = max(1, 1024 * warps // (rows * columns))
    whole, most = short(wanted), 2048 * warps // rows
    fits = whole <= most and whole * own * size + max(moving, whole * rows * 4) <= left
    if fits and whole <= 1.4 * max(SHORTEST, wanted):
        return Chunks(whole, whole, True, at_once, True)
    chunk = min(whole, most)
    while chunk > max(SHORTEST, columns) and (
        chunk * (COPIES * own * size + rows * 4) > left or -wanted % chunk > 0.1 * wanted
    ):
        chunk //= 2
    if chunk < columns or chunk * (COPIES * own * size + rows * 4) > left:
        return None
    return Chunks(chunk, -(-wanted // chunk) * chunk, False, at_once, True)


def _holdable(inner: int, size: int) -> bool:
    """Longer rows come in too late to be multiplied at once; padded ones are work for nothing."""
    return short(inner) * size * size <= 2048 and short(inner) <= 1.1 * max(SHORTEST, inner)


def _streamed(inner: int, columns: int, rows: int, size: int, left: int) -> Chunks:
    chunk = (512 if rows <= 32 and columns <= 64 else 256) // size
    if size == 4 and rows * columns == 256:
        chunk *= 2  # a part for each of four warps
    while chunk > SHORTEST and COPIES * chunk * (rows + columns) * size > left:
        chunk //= 2
    chunk = min(chunk, short(inner))
    return Chunks(chunk, -(-inner // chunk) * chunk, False)


def _parted(chunks: Chunks, results: int, size: int, warps: int) -> Chunks:
    """Parts for the warps that would have few results of their own: one computes 16 by 8.

    Products of two bytes are too quick for that to pay; of four, it saves a tenth of the time, and
    up to a fifth where two warps have results: a part for each of four is quicker, too.
    """
    if size == 2:
        return chunks
    parts = warps if results <= 256 else max(1, warps * 128 // results)
    return replace(chunks, parts=min(parts, chunks.chunk // SHORTEST))


def _independent(program: Program, batch: int, processors: int) -> Tiling:
    """Where no program waits for another, many small ones do best."""
    if processors == 1:
        units = {n: power(n) for n in program.widths}
        chunks = tuple(Chunks(short(g.inner), short(g.inner), True) for g in program.groups)
        return Tiling(1, 1, 16, 16, units, chunks, 4, 1, 0.0)
    widest = max(program.widths, default=1)
    programs = 1 if program.rows else -(-widest // 64)
    groups = -(-batch // 4)
    return Tiling(programs, groups, 4, 4, _units(program, programs), (), 4, 1, 0.0)
