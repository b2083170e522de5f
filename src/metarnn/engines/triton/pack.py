"""Weights in the order in which a program reads them, put so by the program itself, as text.

A layer has the rows of a map one after the other, gate after gate. A program reads those of its
own units, in pieces of the inner dimension that lie together; on the way back it reads columns. To
put them so takes a program some microseconds before its loop, less than to launch a kernel for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate

from metarnn.engines.triton.program import Group, power
from metarnn.engines.triton.text import indented
from metarnn.engines.triton.tiling import Tiling

Array = Callable[[str, str], str]  # the name of an array, from its kind and its own
AT_ONCE = 64  # rows that are put in order in one go


def packed(group: Group, array: Array, tag: str) -> list[str]:
    """Of a product that others compute columns of as well: [programs, units, blocks, inner]."""
    j, count = group.number, f"U{tag} * {group.padded}"
    unit = f"column{j} // {group.padded}"
    lines = [
        f"over{j} = piece + tl.arange(0, S{j})[:, None]",
        f"column{j} = tl.arange(0, {count})[None, :]",
        f"unit{j} = {unit if group.whole else f'me.to(tl.int64) * U{tag} + {unit}'}",
        *_put(group, array, f"column{j} * INNER{j} + over{j}"),
    ]
    return [
        *_place(group, array, f"INNER{j} * {count}"),
        *_pieces(group, lines),
        f"k{j} = inner(CHUNK{j}, PARTS{j})",
        f"p{j} += columns({count}, INNER{j}, CHUNK{j}, PARTS{j})",
    ]


def packed_for_all(group: Group, array: Array) -> list[str]:
    """Of partial sums: [programs, all units, blocks, units of the argument, its tiles]."""
    j, tiles, n = group.number, power(group.tiles), group.source
    lines = [
        f"column{j} = piece + tl.arange(0, S{j})[None, :]",
        f"k{j} = tl.arange(0, K{j})[:, None]",
        f"over{j} = me.to(tl.int64) * U{n} + k{j} // {tiles}",
        f"over{j} = tl.where(over{j} < {n}, over{j} + k{j} % {tiles} * {n}, -1)",
        f"unit{j} = column{j} // {group.padded}",
        *_put(group, array, f"column{j} * K{j} + k{j}"),
    ]
    return [
        f"K{j}: tl.constexpr = U{n} * {tiles}",
        *_place(group, array, f"INNER{j} * K{j}"),
        *_pieces(group, lines),
        f"p{j} += columns(CHUNK{j}, K{j}, K{j}, 1)",
    ]


def places(groups: Iterable[Group], tiling: Tiling, copies: int) -> list[int]:
    """Where the packed weights of products begin, one after the other, and where all end."""
    sizes = (copies * tiling.programs * tiling.weights(group) for group in groups)
    return list(accumulate(sizes, initial=0))


def _place(group: Group, array: Array, size: str) -> list[str]:
    """Where a program's own begin, and how much further the low halves of SPLIT numbers lie."""
    j = group.number
    return [
        f"p{j} = {array('pack', '')} + AT{j} + me.to(tl.int64) * ({size})",
        f"l{j} = P * {size}",
    ]


def _pieces(group: Group, lines: list[str]) -> list[str]:
    j = group.number
    return [
        f"S{j}: tl.constexpr = {AT_ONCE} if CHUNK{j} > {AT_ONCE} else CHUNK{j}",
        f"for piece in tl.range(0, INNER{j}, S{j}, num_stages=1):",
        *indented(lines),
        "tl.debug_barrier()",
    ]


def _put(group: Group, array: Array, place: str) -> list[str]:
    """Read weights where a layer has them, and write them where the program will read them."""
    j, parts = group.number, []
    for begin, end in group.runs:
        block = group.blocks[begin]
        row, step = block.strides
        weight = f"{array('weight', block.map)} + {block.start * row + block.column}"
        of = f"unit{j}, column{j} % {group.padded}, over{j}"
        size = f"{begin}, {end}, {block.offset}, {block.reads}, {group.width}, {row}, {step}"
        parts.append(f"weights({weight}, {of}, {size})")
    return [f"put(p{j} + {place}, {' + '.join(parts)}, l{j}, SPLIT)"]
