"""Products as text: packed weights, arguments from memory or mailboxes, partial sums.

A group named hh has the variables ptr_hh and arg_hh (pointers and values), weights_hh, w_hh and
low_hh (pointers, values, and what float32 leaves over: see `matmul.dot`), inner_hh (offsets of the
inner dimension) and acc_hh (the result); and the parameters INNER_HH, CHUNK_HH and so on: see
`chunks.Chunks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from metarnn.engines.codegen.printer import INDENT
from metarnn.engines.triton.addresses import Elements, Tile
from metarnn.engines.triton.program import MAILBOX_DEPTH, ProductGroup, next_power_of_2
from metarnn.engines.triton.statements import PackWeights, Products

PACKED_AT_ONCE = 64  # rows or columns of weights


def nested(lines: Iterable[str]) -> Iterator[str]:
    return (f"{INDENT}{line}" for line in lines)


def columns(group: ProductGroup) -> str:
    """How many elements of a row of the result a program computes."""
    units = f"UNITS_{Tile(group.width, group.replicated).suffix}"
    return f"{units} * {group.padded_blocks}" if group.padded_blocks > 1 else units


def dot(group: ProductGroup, row: str) -> str:
    return f"dot({row}, w_{group.name}, low_{group.name}, SPLIT_FP32)"


def load_weights(group: ProductGroup, offset: str = "") -> Iterator[str]:
    name = group.name
    low = f"tl.load(weights_{name} + split_{name}{offset})"
    yield f"w_{name} = tl.load(weights_{name}{offset})"
    yield f"low_{name} = {low} if SPLIT_FP32 else w_{name}"


def pack_weights(p: PackWeights) -> Iterator[str]:
    if p.group.partial_tiles:
        yield f"if {p.group.constant('PARTIAL')}:"
        yield from nested(_pack(p, partial=True))
        yield "else:"
        yield from nested(_pack(p, partial=False))
    else:
        yield from _pack(p, partial=False)
    yield f"if {p.group.constant('RESIDENT')}:"
    yield from nested(load_weights(p.group))


def _pack(p: PackWeights, partial: bool) -> Iterator[str]:
    g, tiles = p.group, next_power_of_2(p.group.partial_tiles)
    weights, split = f"weights_{g.name}", f"split_{g.name}"
    CHUNK, INNER, PARTS = map(g.constant, ("CHUNK", "INNER", "PARTS"))
    PIECE, OWN, OFFSET = map(g.constant, ("PIECE", "OWN", "OFFSET"))
    if partial:
        yield f"{OWN}: tl.constexpr = UNITS_{g.tile_width} * {tiles}"
    size = f"{INNER} * {OWN}" if partial else f"{INNER} * {columns(g)}"
    yield f"{weights} = {p.packed} + {OFFSET} + program.to(tl.int64) * ({size})"
    yield f"{split} = PROGRAMS * {size}"
    yield f"{PIECE}: tl.constexpr = {PACKED_AT_ONCE} if {CHUNK} > {PACKED_AT_ONCE} else {CHUNK}"
    yield f"for piece in tl.range(0, {INNER}, {PIECE}, num_stages=1):"
    if partial:
        yield f"    column = piece + tl.arange(0, {PIECE})[None, :]"
        yield f"    own = tl.arange(0, {OWN})[:, None]"
        yield f"    inner = program.to(tl.int64) * UNITS_{g.tile_width} + own // {tiles}"
        shifted = f"inner + own % {tiles} * {g.tile_width}"
        yield f"    inner = tl.where(inner < {g.tile_width}, {shifted}, -1)"
        yield f"    unit = column // {g.padded_blocks}"
        place = f"{weights} + column * {OWN} + own"
    else:
        suffix = Tile(g.width, g.replicated).suffix
        first = "" if g.replicated else f"program.to(tl.int64) * UNITS_{suffix} + "
        yield f"    inner = piece + tl.arange(0, {PIECE})[:, None]"
        yield f"    column = tl.arange(0, {columns(g)})[None, :]"
        yield f"    unit = {first}column // {g.padded_blocks}"
        place = f"{weights} + column * {INNER} + inner"
    runs = zip(p.weights, g.runs, strict=True)
    parts = " + ".join(_run(g, pointer, *run) for pointer, run in runs)
    yield f"    store_weights({place}, {parts}, {split}, SPLIT_FP32)"
    yield "tl.debug_barrier()"
    if partial:
        yield f"{weights} += weight_offsets({CHUNK}, {OWN}, {OWN}, 1)"
    else:
        yield f"inner_{g.name} = inner_offsets({CHUNK}, {PARTS})"
        yield f"{weights} += weight_offsets({columns(g)}, {INNER}, {CHUNK}, {PARTS})"


def _run(group: ProductGroup, pointer: str, begin: int, end: int) -> str:
    """The weights of blocks that lie one after the other."""
    block = group.blocks[begin]
    row, column = block.strides
    where = f"{pointer} + {block.start * row + block.column}"
    which = f"unit, column % {group.padded_blocks}, inner, {begin}, {end}"
    return (
        f"load_weights({where}, {which}, {block.offset}, {block.reads}, {group.width}, "
        f"{row}, {column})"
    )


def products(p: Products) -> Iterator[str]:
    lead = p.groups[0]
    if not p.partial_sums:
        yield from _multiply(p)
        return
    yield f"if {lead.constant('PARTIAL')}:"
    for group, array in zip(p.groups, p.partial_sums, strict=True):
        own = "" if group.replicated else f" + program * (PROGRAMS * BLOCK_B * {columns(group)})"
        yield (
            f"    acc_{group.name}, ok = reduce_partials({partial_sums(group, array)}{own}, rows, "
            f"parity(s, 2), ok, PROGRAMS, BLOCK_B, {columns(group)}, {group.constant('PARTS')}, "
            "PUBLISH)"
        )
    yield "else:"
    yield from nested(_multiply(p))


def _multiply(p: Products) -> Iterator[str]:
    """Multiply all of the argument, or piece by piece. What is published is read at once: in pieces
    there would be none to multiply while others are awaited."""
    lead, argument = p.groups[0], p.argument
    x, where, inner = f"arg_{lead.name}", f"ptr_{lead.name}", f"inner_{lead.name}"
    CHUNK, INNER, PARTS = map(lead.constant, ("CHUNK", "INNER", "PARTS"))
    published, bit = ("PUBLISH", f"parity(s, {MAILBOX_DEPTH})") if p.mailbox else ("False", "0")
    if p.mailbox:
        yield "if PUBLISH:"
        yield f"    {where} = {_rows(lead, p.mailbox)} + {inner}"
        yield "else:"
        yield f"    {where} = {_rows(lead, argument)} + {inner}"
    else:
        yield f"{where} = {_rows(lead, argument)} + {inner}"
    mask = f"expand(row_mask, {PARTS}) & ({inner} < {lead.inner})"
    yield f"if {lead.constant('RESIDENT')}:"
    yield f"    {x}, ok = poll_or_load({where}, {mask}, {bit}, ok, {published})"
    yield f"    {x} = {x}.to(DOT_DTYPE)"
    for group in p.groups:
        yield f"    acc_{group.name} = {dot(group, x)}"
    yield "else:"
    for group in p.groups:
        yield f"    acc_{group.name} = zeros(BLOCK_B, {columns(group)}, {group.constant('PARTS')})"
    yield f"    for k in range(0, {INNER}, {CHUNK}):"
    mask = f"expand(row_mask, {PARTS}) & ({inner} + k < {lead.inner})"
    load = f'tl.load({where} + k, mask={mask}, other=0.0, cache_modifier=".cg")'
    yield f"        {x} = {load}.to(DOT_DTYPE)"
    for group in p.groups:
        yield from nested(nested(load_weights(group, " + k")))
        yield f"        acc_{group.name} += {dot(group, x)}"
    for group in p.groups:
        yield f"acc_{group.name} = reduce(acc_{group.name}, {group.constant('PARTS')})"
    for group in p.groups:
        yield from convert_layout(group, p.packed)


def convert_layout(group: ProductGroup, packed: str) -> Iterator[str]:
    """Bring a result that is not split to how all else lies in registers."""
    if group.padded_blocks == 1:
        # Another place for each result: of two loads from one, Triton would keep the earlier.
        place = f"{packed} + {group.number}, ok, BLOCK_B, {columns(group)}"
        yield f"acc_{group.name} = convert_layout(acc_{group.name}, {place})"


def _rows(group: ProductGroup, argument: Elements) -> str:
    """Where the rows of an argument begin."""
    rows = f" + expand(row * {argument.width}, {group.constant('PARTS')})"
    start = f" + {argument.start}" if argument.start else ""
    return f"{argument.base}{start}{'' if argument.shared else rows}"


def scatter_partials(group: ProductGroup, array: str, tiles: Sequence[str]) -> Iterator[str]:
    """This program's part of the argument, in tiles, multiplied for all who need it."""
    width = group.tile_width
    own = [f"tl.where(inside_{width}, {tile}, 0.0)" for tile in tiles]
    padding = next_power_of_2(group.partial_tiles) - group.partial_tiles
    own += [f"tl.zeros((BLOCK_B, UNITS_{width}), tl.float32)"] * padding
    x, OWN = f"arg_{group.name}", group.constant("OWN")

    def scatter(first: str) -> str:
        return (
            f"scatter_partials({partial_sums(group, array)}, {dot(group, x)}, {first}, program, "
            f"rows, parity(s, 2), PROGRAMS, {receivers(group)}, {columns(group)}, PUBLISH)"
        )

    yield f"if {group.constant('PARTIAL')}:"
    yield f"    {x} = {_joined(own, width)}.to(DOT_DTYPE)"
    yield f"    if {group.constant('RESIDENT')}:"
    yield f"        {scatter('0')}"
    yield "    else:"
    yield f"        for k in range(0, {group.constant('INNER')}, {group.constant('CHUNK')}):"
    yield from nested(nested(nested(load_weights(group, f" + k * {OWN}"))))
    yield f"            {scatter('k')}"


def clear_partials(group: ProductGroup, array: str) -> Iterator[str]:
    place = f"{array} + group * 2 * ({_sums(group)})"
    yield f"if {group.constant('PARTIAL')}:"
    yield (
        f"    clear_partials({place}, program, PROGRAMS, {receivers(group)}, BLOCK_B, "
        f"{columns(group)})"
    )


def partial_sums(group: ProductGroup, array: str) -> str:
    """Where the partial sums of this step lie: those of one group of programs."""
    return f"{array} + (group * 2 + s64 % 2) * ({_sums(group)})"


def receivers(group: ProductGroup) -> str:
    return "1" if group.replicated else "PROGRAMS"


def _sums(group: ProductGroup) -> str:
    """How many partial sums of one step a group of programs has."""
    return f"{receivers(group)} * PROGRAMS * BLOCK_B * {columns(group)}"


def _joined(tiles: Sequence[str], width: int) -> str:
    """Tiles side by side: unit by unit, of each unit all tiles."""
    if len(tiles) == 1:
        return tiles[0]
    even, odd = _joined(tiles[::2], width), _joined(tiles[1::2], width)
    return f"join_blocks({even}, {odd}, BLOCK_B, UNITS_{width} * {len(tiles)})"
