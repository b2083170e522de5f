"""A step cut into segments: between two of them programs may have to exchange values.

In a segment over *units* each program computes its slice of rows of one width, products first; in
a segment over *rows* (layer norm, softmax) each program takes whole sequences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from metarnn.engines.codegen.dataflow import Dataflow
from metarnn.engines.triton.addresses import Tile
from metarnn.graph import stages

MAX_BLOCKS = 8  # a product is cut into at most so many blocks of rows: its gates
# The longest rows that each program computes for itself. By the cost model, 32 elements that each
# read 512 take 0.7 µs, and a barrier takes 1.7.
MAX_REPLICATED = 32


@dataclass(frozen=True)
class Segment:
    """A part of a step without a barrier inside. `width` is 0 for a segment over rows."""

    width: int
    products: tuple[int, ...] = ()
    operations: tuple[int, ...] = ()  # all else that is computed
    copies: tuple[int, ...] = ()  # results that nothing computes: sources and slices
    replicated: bool = False  # whether each program computes all units

    @property
    def nodes(self) -> tuple[int, ...]:
        return (*self.products, *self.operations, *self.copies)

    @property
    def tile(self) -> Tile:
        return Tile(self.width, self.replicated)


def segments(flow: Dataflow, results: Iterable[int]) -> list[Segment]:
    """The segments of a step, in order. `results` are the nodes that are written to an array."""
    cut = _Segments(flow).of_stages()
    copies = [k for k in results if flow.nodes[k].source or flow.nodes[k].op == "slice"]
    for width in dict.fromkeys(flow.nodes[k].width for k in copies):
        same = tuple(k for k in copies if flow.nodes[k].width == width)
        cut.append(Segment(width, copies=same))
    width_of = {k: segment.width for segment in cut for k in segment.nodes}
    return [replace(s, replicated=_replicated(flow, s, width_of)) for s in cut]


def _replicated(flow: Dataflow, segment: Segment, width_of: dict[int, int]) -> bool:
    """Whether each program computes a segment for itself, which is faster than to exchange it.

    So it is where rows are short, are computed from products and constants alone, and are read by
    products of wider segments only.
    """
    n, nodes, own = segment.width, flow.nodes, {*segment.products, *segment.operations}
    if not 0 < n <= MAX_REPLICATED or not segment.products or own & {*flow.graph.next_states}:
        return False
    if any(nodes[k].width != n or nodes[k].op == "join" for k in own):
        return False
    arguments = {flow.slice(a).root for k in segment.operations for a in nodes[k].args} - own
    if any(not nodes[k].source or nodes[k].op == "state" for k in arguments):
        return False
    uses = [use for k in own for use in flow.uses(k) if use.user not in own]
    return bool(uses) and all(
        nodes[use.user].op == "linear" and width_of[use.user] > n for use in uses
    )


class _Segments:
    def __init__(self, flow: Dataflow) -> None:
        self.flow, self.nodes = flow, flow.nodes

    def of_stages(self) -> list[Segment]:
        order = stages(self.flow.graph)
        level = {k: i for i, stage in enumerate(order) for k in (*stage.products, *stage.rest)}
        cut: list[Segment] = []
        postponed: tuple[int, ...] = ()
        for i, stage in enumerate(order):
            operations = tuple(k for k in stage.rest if self.nodes[k].op != "slice")
            products = (*postponed, *stage.products)
            n = self._common_width(products, operations)
            postponed = tuple(k for k in products if self._postponed(k, n, i, level))
            products = tuple(k for k in products if k not in postponed)
            if operations or products:
                cut += self._of_stage(products, operations)
        return cut

    def _postponed(self, k: int, n: int, now: int, level: dict[int, int]) -> bool:
        """Whether a product is left to a later stage, which reads rows not of this width of it."""
        uses = [use for use in self.flow.uses(k) if use.user != k]
        due = [level[use.user] - (self.nodes[use.user].op == "linear") for use in uses]
        return min(due, default=now) > now and any(use.width != n for use in uses)

    def _of_stage(self, products: tuple[int, ...], operations: tuple[int, ...]) -> list[Segment]:
        """One segment if it can be; else, with products that only later stages read apart, one for
        all operations or one for each width; else a segment over rows."""
        if n := self._common_width(products, operations):
            return [Segment(n, products, operations)]
        arguments = {self.flow.slice(a).root for k in operations for a in self.nodes[k].args}
        read = tuple(k for k in products if k in arguments)
        unread = self._by_width(tuple(k for k in products if k not in arguments))
        if operations and (n := self._common_width(read, operations)):
            return [*unread, Segment(n, read, operations)]
        if operations and (each := self._each_width(read, operations)):
            return [*unread, *each]
        rows = [Segment(0, (), operations)] if operations else []
        return [*self._by_width(products), *rows]

    def _each_width(self, products: tuple[int, ...], operations: tuple[int, ...]) -> list[Segment]:
        """A segment for each width of the operations, if none reads another's; else none."""
        cut: list[Segment] = []
        for width in dict.fromkeys(self.nodes[k].width for k in operations):
            same = tuple(k for k in operations if self.nodes[k].width == width)
            arguments = {self.flow.slice(a).root for k in same for a in self.nodes[k].args}
            own = tuple(k for k in products if k in arguments)
            if self._common_width(own, same) != width or arguments & ({*operations} - {*same}):
                return []
            cut.append(Segment(width, own, same))
        done = [k for segment in cut for k in segment.products]
        return cut if sorted(done) == sorted(products) else []

    def _by_width(self, products: tuple[int, ...]) -> list[Segment]:
        widths = dict.fromkeys(self.nodes[k].width for k in products)
        return [Segment(n, tuple(k for k in products if self.nodes[k].width == n)) for n in widths]

    def _common_width(self, products: tuple[int, ...], operations: tuple[int, ...]) -> int:
        """The width of a stage's rows if all have the same and none needs another's units; or 0."""
        nodes = self.nodes
        widths = {nodes[k].width for k in operations if nodes[k].elementwise and nodes[k].width > 1}
        widths = widths or {nodes[a].width for k in operations if nodes[k].op == "join"
                            for a in nodes[k].args}  # fmt: skip
        widths = widths or {nodes[k].width for k in products}
        n = widths.pop() if len(widths) == 1 else 0
        # A product of a few gates is cut into these. One that is far wider is not made of gates:
        # cut up, it would be left to the few programs that have units of so small a width.
        if not n or any(nodes[k].width % n or nodes[k].width > MAX_BLOCKS * n for k in products):
            return 0
        here = {*products, *operations}
        return n if all(self._fits(k, n, here) for k in operations) else 0

    def _fits(self, k: int, n: int, here: set[int]) -> bool:
        """Whether an operation is one on tiles of units of rows of width n."""
        node = self.nodes[k]
        if not node.elementwise and node.op != "join":
            return False
        if node.width == 1 < n and k in self.flow.results:
            return False
        for a in node.args:
            width = self.nodes[a].width
            if width != n and (width != 1 or node.op == "join"):
                return False
            root, start, _ = self.flow.slice(a)
            if root not in here or self.nodes[root].source:
                continue
            if self.nodes[root].op == "join" or (width == 1 < self.nodes[root].width):
                return False
            if start and (self.nodes[root].op != "linear" or start % n):
                return False
        return not (node.width == 1 < n) or all(
            self.nodes[use.user].elementwise for use in self.flow.uses(k)
        )
