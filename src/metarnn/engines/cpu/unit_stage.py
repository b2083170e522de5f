"""A stage whose values are all rows of one width: threads may split the units into tiles."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from metarnn.engines.codegen.ondemand import OnDemand
from metarnn.engines.codegen.statements import Axes, Load, Operand, Statement, Value
from metarnn.engines.cpu.arrays import Arrays, Target
from metarnn.engines.cpu.products import VECTORS, ProductGroup, Products, tile_size
from metarnn.engines.cpu.statements import for_tiles, for_vectors
from metarnn.graph import Stage


def common_width(arrays: Arrays, stage: Stage) -> int:
    """The width of a stage's rows if all have the same and none needs another's units; else 0."""
    nodes, rest = arrays.nodes, stage.rest
    widths = {nodes[k].width for k in rest if nodes[k].elementwise and nodes[k].width > 1}
    widths = widths or {nodes[k].width for k in stage.products}
    n = widths.pop() if len(widths) == 1 else 0
    if not n or any(nodes[k].width % n for k in stage.products):
        return 0
    wide = {k for k in stage.products if nodes[k].width != n}  # may be read in slices only
    if wide - {a for k in rest for a in nodes[k].args}:
        return 0  # a wide product that only later stages read would be cut into narrow blocks
    if any(a in wide for k in rest if nodes[k].op != "slice" for a in nodes[k].args):
        return 0
    return n if all(_fits(arrays, stage, k, n) for k in rest) else 0


def _fits(arrays: Arrays, stage: Stage, k: int, n: int) -> bool:
    nodes, node = arrays.nodes, arrays.nodes[k]
    if node.elementwise:
        kept = k in arrays.pointer or k in arrays.targets
        narrow = all(nodes[a].width in (1, n) for a in node.args)
        return narrow and not (node.width == 1 and kept)
    if node.op == "slice":
        root = node.args[0]
        if node.width != n or k in arrays.targets or root not in arrays.pointer:
            return False
        if root in stage.products:
            return node["start"] % n == 0
        # Elements of a state or of an earlier stage elsewhere in the row are another thread's.
        return nodes[root].op in ("input", "context", "vector") or node["start"] == 0
    if node.op == "join":
        read_here = any(user in stage.rest for user in arrays.flow.users[k])
        return not read_here and all(nodes[a].width == n for a in node.args)
    return False


def unit_stage(
    arrays: Arrays, products: Products, groups: list[ProductGroup], stage: Stage, n: int
) -> Statement:
    """A stage of rows of n units: of each of the thread's tiles products, then elementwise work."""
    tile = tile_size(groups[0].vectors if groups else VECTORS)
    multiply = [statement for group in groups for statement in products.multiply(group)]
    body = unit_values(arrays, stage, n)
    vectors = for_vectors(n, tile, tuple(body)) if body else ()
    return for_tiles(n, tile, (*multiply, *vectors))


def unit_values(arrays: Arrays, stage: Stage, n: int) -> list[Statement]:
    """The elementwise work on one vector of units u of sequence b."""
    values = VectorValues(arrays, stage.rest)
    for k in (*stage.products, *stage.rest):
        node, home = arrays.nodes[k], arrays.pointer.get(k)
        targets = arrays.targets.get(k, [])
        if node.op == "slice":
            continue
        if node.op == "linear":  # its product has written that already
            targets = [target for target in targets if target.pointer != home]
        elif home and all(target.pointer != home for target in targets):
            targets = [Target(home), *targets]
        for target in targets:
            for start, value in _blocks(values, k, n):
                values.statements.append(arrays.put(target, node.width, start, value))
    return values.statements


class VectorValues(OnDemand):
    """Values of one vector of units u of sequence b, in registers."""

    def __init__(self, arrays: Arrays, computed: Collection[int]) -> None:
        super().__init__(arrays.flow)
        self.arrays, self.computed = arrays, frozenset(computed)
        self.names = arrays.names.scope()

    def computes(self, k: int) -> bool:
        return k in self.computed

    def name(self, k: int) -> str:
        return self.names.unique(self.names.value(k))

    def source(self, k: int) -> Operand:
        return self.load(k)

    def load(self, k: int, start: int = 0, width: int = 0) -> Value:
        """The vector of a node in memory, or of units [start, start + width) of a wider one."""
        axes = Axes.SEQUENCES if self.arrays.nodes[k].width == 1 else Axes.TILE
        name = self.arrays.loaded(k) + (f"_{start // width}" if width else "")
        target = Value(self.names.unique(name), axes)
        address = self.arrays.address(k)
        self.statements.append(Load(target, replace(address, start=address.start + start)))
        return target


def _blocks(values: VectorValues, k: int, n: int) -> Iterator[tuple[int, Operand]]:
    """The vectors of n units that a row consists of: where in it each begins, and its value."""
    node = values.nodes[k]
    if node.op == "join":
        for start, a in values.flow.parts(k):
            yield start, values.value(a)
    elif node.width == n:
        yield 0, values.value(k)
    else:  # a product of several blocks that has a second place to go to
        for start in range(0, node.width, n):
            yield start, values.load(k, start, n)
