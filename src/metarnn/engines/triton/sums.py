"""Products of what a segment over units has just computed, as text.

Each program may multiply the part of the argument that it has itself, for all programs, and hand
out the partial sums; after the barrier each collects its own. That takes less than to read what all
have computed where the argument is longer than the result, as it is on the way back through gates.
"""

from __future__ import annotations

from metarnn.engines.triton.layout import GATES, Layout
from metarnn.engines.triton.program import Group, power
from metarnn.engines.triton.text import indented


def tiles(layout: Layout, argument: int, number: int) -> int:
    """In how many tiles of units a segment before that number has an argument; 0: in none."""
    (root, start), width = layout.root(argument), layout.nodes[argument].width
    home = layout.home.get(root, number)
    segment, node = layout.segments[home], layout.nodes[root]
    n = segment.width
    if home >= number or not n or segment.whole or width > GATES * n:
        return 0
    parts = node.args if node.op == "join" else [root] if node.elementwise else []
    alike = bool(parts) and all(layout.nodes[k].width == n for k in parts)
    return width // n if alike and start % n == width % n == 0 else 0


def handed_out(group: Group, tiles: list[str], array: str) -> list[str]:
    """This program's part of the argument, in tiles, multiplied and given to who needs it."""
    j, none = group.number, f"tl.zeros((BB, U{group.source}), tl.float32)"
    own = [f"tl.where(w{group.source}, {tile}, 0.0)" for tile in tiles]
    own += [none] * (power(group.tiles) - group.tiles)
    mine = f"me, rows, turn(s, 2), P, {_takers(group)}, {_columns(group)}, TOLD"
    place, product = _place(group, array), f"dot(r{j}, w_{j}, v_{j}, SPLIT)"
    lines = [
        f"r{j} = {_joined(own, group.source)}.to(DOT)",
        f"if HELD{j}:",
        f"    hand_out({place}, {product}, 0, {mine})",
        "else:",
        f"    for k in range(0, INNER{j}, CHUNK{j}):",
        f"        w_{j} = tl.load(p{j} + k * K{j})",
        f"        v_{j} = tl.load(p{j} + l{j} + k * K{j}) if SPLIT else w_{j}",
        f"        hand_out({place}, {product}, k, {mine})",
    ]
    return [f"if PARTIAL{j}:", *indented(lines)]


def collected(group: Group, array: str) -> str:
    """This program's sums, of the parts that all programs have given."""
    columns = _columns(group)
    mine = "" if group.whole else f" + me * (P * BB * {columns})"
    how = f"rows, turn(s, 2), fine, P, BB, {columns}, PARTS{group.number}, TOLD"
    return f"collect({_place(group, array)}{mine}, {how})"


def untold(group: Group, array: str) -> str:
    """A line before the loop: of this program's sums there is none yet."""
    place = f"{array} + group * 2 * ({_size(group)})"
    return f"untold({place}, me, P, {_takers(group)}, BB, {_columns(group)})"


def _place(group: Group, array: str) -> str:
    """Where the sums of this step lie: those of one group of programs."""
    return f"{array} + (group * 2 + s64 % 2) * ({_size(group)})"


def _size(group: Group) -> str:
    """How many sums of one step a group of programs has."""
    return f"{_takers(group)} * P * BB * {_columns(group)}"


def _takers(group: Group) -> str:
    return "1" if group.whole else "P"


def _columns(group: Group) -> str:
    return f"U{group.width}{'w' if group.whole else ''} * {group.padded}"


def _joined(tiles: list[str], width: int) -> str:
    """Tiles side by side: unit by unit, of each unit all tiles."""
    if len(tiles) == 1:
        return tiles[0]
    even, odd = _joined(tiles[::2], width), _joined(tiles[1::2], width)
    return f"join2({even}, {odd}, BB, U{width} * {len(tiles)})"
