"""A kernel under construction: what its segments share."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from metarnn.engines.codegen import statements as s
from metarnn.engines.codegen.dataflow import Slice
from metarnn.engines.codegen.names import Names
from metarnn.engines.triton.addresses import Elements, Index, PerSequence, Tile
from metarnn.engines.triton.arguments import Arguments
from metarnn.engines.triton.layout import Layout
from metarnn.engines.triton.program import ProductGroup
from metarnn.graph import Graph

# Variables of every kernel. Those of a product begin with acc_, arg_, inner_, low_, ptr_, split_,
# w_ or weights_, as no other does.
RESERVED = (
    "B", "arrivals", "batch", "column", "counter", "first", "group", "index", "inner", "k", "ok",
    "own", "pid", "piece", "program", "row", "row_mask", "rows", "s", "s64", "sequence", "steps",
    "t", "t_prefetch", "tl", "triton", "unit", "zero",
)  # fmt: skip


class Place(NamedTuple):
    """Where rows of an array begin: its pointer, and that address."""

    array: str
    base: str


class Builder:
    """What the segments of a kernel add to, and where values are.

    Attributes:
        tiles: All that the kernel uses.
        once: Before the loop, what is the same at all steps, and weights.
        before: Then the initial states and sums; `after` the loop what becomes of them.
        registers: Values that segments find in registers, if these compute the same units.
        replicated: Rows that each program has all of.
        scratch: Arrays for values that only programs read: width, and whether only products do.
    """

    def __init__(self, graph: Graph, backward: bool, kept: frozenset[int], readable: bool) -> None:
        self.graph, self.nodes, self.layout = graph, graph.nodes, Layout(graph)
        self.backward = backward
        self.names = Names(self.layout, readable=readable, backward=backward, reserved=RESERVED)
        self.states = [self.names.unique(name) for name in self.names.states]
        self.arguments = Arguments(graph, self.names)
        self.groups: list[ProductGroup] = []
        self.tiles: dict[Tile, None] = {}
        self.once: dict[s.Statement, None] = {}
        self.before: list[s.Statement] = []
        self.after: list[s.Statement] = []
        self.registers: dict[Slice, s.Operand] = {}
        self.replicated: dict[int, s.Operand] = {}
        self.scratch: dict[str, tuple[int, bool]] = {}
        states = range(len(graph.states))
        self.has_array = [i in kept or self.layout.state_in_memory(i) for i in states]
        self._variables: dict[Hashable, str] = {}

    def pointer(self, kind: str, name: str) -> str:
        return self.arguments.pointer(kind, name)

    def variable(self, key: Slice, where: Hashable) -> str:
        """The variable for a slice of a node, of its own for each place where it is computed."""
        if (key, where) not in self._variables:
            base = self.arguments.name(key.root)
            base += "" if key.width == self.nodes[key.root].width else f"_{key.start}"
            self._variables[key, where] = self.names.unique(base)
        return self._variables[key, where]

    # Where values are in memory -----------------------------------------------------------

    def first_row(self, k: int) -> Place:
        """Where the rows of a node in memory begin at this step."""
        node, layout = self.nodes[k], self.layout
        if node.op == "state":
            index = node["index"]
            slot = f"(s64 if FULL_HISTORY_{index} else s64 % 3)"
            return self._place("state", str(index), slot, node.width)
        if node.op == "input":
            return self._place("input", node["name"], "t", node.width)
        if node.source:
            return Place(*[self.pointer(node.op, node["name"])] * 2)
        for kind, name in layout.targets.get(k, ()):
            if kind == "output" or (kind == "state" and self.has_array[int(name)]):
                return self.target(kind, name, node.width)
        self.scratch[str(k)] = node.width, layout.only_products_read(k)
        return self._place("scratch", str(k), "s64 % 2", node.width)

    def target(self, kind: str, name: str, width: int) -> Place:
        """Where the rows of a result of this step begin."""
        after = f"(s64 + 1 if FULL_HISTORY_{name} else (s64 + 1) % 3)"
        return self._place(kind, name, after if kind == "state" else "t", width)

    def targets(self, k: int) -> list[tuple[Place, bool]]:
        """All places in memory that take a node at this step, and whether other programs wait."""
        layout, width = self.layout, self.nodes[k].width
        targets: list[tuple[Place, bool]] = []
        for kind, name in layout.targets.get(k, ()):
            if kind == "output" or (kind == "state" and self.has_array[int(name)]):
                waits = kind == "state" and layout.state_in_memory(int(name))
                targets.append((self.target(kind, name, width), waits))
        if k in layout.in_memory:
            own = self.first_row(k)
            targets = [(place, waits or place == own) for place, waits in targets]
            if not any(place == own for place, _ in targets):
                targets.append((own, True))
        return targets

    def _place(self, kind: str, name: str, slot: str, width: int) -> Place:
        array = self.pointer(kind, name)
        return Place(array, f"{array} + {slot} * B * {width}")

    def read(
        self, key: Slice, place: Place, tile: Tile, bypass_l1: bool = False
    ) -> tuple[s.Axes, Elements]:
        """A slice of a node whose rows are at a place: the axes that it has, and its elements."""
        shared = self.nodes[key.root].op == "vector"
        single = key.width == 1 != tile.width
        axes = s.Axes.NONE if single else s.Axes.UNITS
        axes |= s.Axes.NONE if shared else s.Axes.SEQUENCES
        index = PerSequence() if single else tile
        width = self.nodes[key.root].width
        return axes, elements(place, width, key.start, index, shared, bypass_l1)

    def constant(self, key: Slice, tile: Tile) -> s.Value:
        """A vector or a context, which is the same at all steps and loaded once."""
        axes, address = self.read(key, self.first_row(key.root), tile)
        value = s.Value(self.variable(key, tile), axes)
        self.once[s.Load(value, address)] = None
        return value


def elements(
    place: Place, width: int, start: int, index: Index, shared: bool = False,
    bypass_l1: bool = False,
) -> Elements:  # fmt: skip
    return Elements(place.base, width, start, shared, place.array, index, bypass_l1)
