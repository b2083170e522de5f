"""Segments over units: values are tiles of a program's units, [BLOCK_B, UNITS]."""

from __future__ import annotations

from typing import NamedTuple

from metarnn.engines.codegen import statements as s
from metarnn.engines.codegen.dataflow import Slice
from metarnn.engines.codegen.ondemand import OnDemand
from metarnn.engines.triton import statements as t
from metarnn.engines.triton.addresses import PerSequence
from metarnn.engines.triton.builder import Builder, Place, elements
from metarnn.engines.triton.mailboxes import Mailboxes
from metarnn.engines.triton.prefetch import Prefetch
from metarnn.engines.triton.products import SegmentProducts
from metarnn.engines.triton.program import ProductGroup


class Phases(NamedTuple):
    """What a segment does in a step."""

    ready: s.Block = ()  # while it may still have to wait for other programs
    exchanged: s.Block = ()  # all that other programs wait for
    deferred: s.Block = ()  # what nobody waits for


class Units(OnDemand):
    """A segment over units. Products of other segments may be scattered from here."""

    def __init__(
        self, kernel: Builder, prefetch: Prefetch, mailboxes: Mailboxes, number: int
    ) -> None:
        super().__init__(kernel.layout)
        self.kernel, self.prefetch, self.mailboxes = kernel, prefetch, mailboxes
        self.layout, self.values, self.number = kernel.layout, kernel.registers, number
        self.segment = self.layout.segments[number]
        self.tile, self.n = self.segment.tile, self.segment.width
        kernel.tiles[self.tile] = None
        self.products = SegmentProducts(kernel, mailboxes, number)
        self.scattered: list[tuple[ProductGroup, int]] = []  # with their arguments

    def phases(self) -> Phases:
        awaited = self.layout.awaited.get(self.number, set())
        groups = self.products.groups
        late = [each for each in groups if self.flow.slice(each[1]).root in awaited]
        for each in groups:
            if each not in late:
                self.statements += self.products.compute(*each)
        ready = self.take()
        for each in late:
            self.statements += self.products.compute(*each)
        nodes = self.segment.nodes
        if self.segment.replicated:
            self.kernel.replicated |= {k: self.value(k) for k in nodes}
        targets = [(k, *target) for k in nodes for target in self.kernel.targets(k)]
        for group, argument in self.scattered:
            self._scatter(group, argument)
        for k in nodes:
            self._publish(k)
        for k, place, waits in targets:
            if waits:
                later = self._stored_later(k)
                self._store(k, place, True, negated(later) if later else "")
        exchanged = self.take()
        for k, place, waits in targets:
            if not waits:
                self._store(k, place, False)
            elif (later := self._stored_later(k)) and not self._only_exchanged(k, place):
                self._store(k, place, False, later)
        for k in nodes:
            for kind, name in self.layout.targets.get(k, ()):
                if kind == "sum":
                    self._add(k, name)
        return Phases(ready, exchanged, self.take())

    def take(self) -> s.Block:
        """The statements since the last time."""
        taken, self.statements = tuple(self.statements), []
        return taken

    # Results ------------------------------------------------------------------------------

    def _store(self, k: int, place: Place, bypass_l1: bool, when: str = "") -> None:
        width = self.nodes[k].width
        single = width == 1 != self.n
        index = PerSequence() if single else self.tile
        parts = [(0, self.value(k))] if single else self._tiles(k)
        stores = [
            s.Store(elements(place, width, start, index, bypass_l1=bypass_l1), value)
            for start, value in parts
        ]
        self.statements += [s.If(when, tuple(stores))] if when else stores

    def _publish(self, k: int) -> None:
        for place, step in self.mailboxes.targets(k):
            stores: list[s.Statement] = []
            for start, value in self._tiles(k):
                address = elements(place, self.nodes[k].width, start, self.tile)
                stores.append(t.Publish(address, value, step))
                if self.mailboxes.for_own_step(k):
                    self.mailboxes.clear(k, start, self.tile)
            name = f"{place.array.removesuffix('_mailbox_ptr')}"
            when = "the next" if step != "s" else "this"
            self.statements.append(s.Comment(f"Publish {name} for {when} step."))
            only = self._only_scattered(k)
            condition = f"PUBLISH and {negated(only)}" if only else "PUBLISH"
            self.statements.append(s.If(condition, tuple(stores)))

    def _scatter(self, group: ProductGroup, argument: int) -> None:
        root, start, width = self.flow.slice(argument)
        tiles = [value for at, value in self._tiles(root) if start <= at < start + width]
        array = self.kernel.pointer("partial_sums", group.name)
        self.statements.append(t.ScatterPartials(group, tuple(tiles), array))
        self.mailboxes.setup[t.ClearPartials(group, array)] = None

    def _add(self, k: int, name: str) -> None:
        """Add a node to its sum over time."""
        array, width = self.kernel.pointer("sum", name), self.nodes[k].width
        for start, value in self._tiles(k):
            total = s.Value(self.kernel.names.unique(f"sum_{start}_{array.removesuffix('_ptr')}"))
            self.kernel.before.append(t.Broadcast(total, s.Constant(0.0), self.tile))
            self.statements.append(s.Accumulate(total, value))
            address = elements(Place(array, array), width, start, self.tile)
            self.kernel.after.append(s.Store(address, total))

    def _stored_later(self, k: int) -> str:
        """The condition under which others do not wait for a node to be stored."""
        published = "PUBLISH" if self.layout.published else ""
        return " or ".join(filter(None, [self._only_scattered(k), published]))

    def _only_scattered(self, k: int) -> str:
        """The condition under which others do not read a node, since all products of it are
        scattered. Empty: there is none."""
        groups = [g for g, argument in self.scattered if self.flow.slice(argument).root == k]
        scattered = {block.product for group in groups for block in group.blocks}
        if k in self.layout.graph.next_states or any(
            use.user not in scattered and not self.layout.in_registers(k, use)
            for use in self.layout.uses(k)
        ):
            return ""
        return " and ".join(group.constant("PARTIAL") for group in groups)

    def _only_exchanged(self, k: int, place: Place) -> bool:
        """Whether a place is there only for other programs to read a node at this step."""
        return str(k) in self.kernel.scratch and place == self.kernel.first_row(k)

    def _tiles(self, k: int) -> list[tuple[int, s.Operand]]:
        """A node as tiles: (where in the row it begins, its value)."""
        node, n = self.nodes[k], self.n
        if node.op == "linear":
            starts = range(0, node.width, n)
            return [(start, self.values[Slice(k, start, n)]) for start in starts]
        return [(start, self.value(a)) for start, a in self.flow.parts(k)]

    # Values -------------------------------------------------------------------------------

    def computes(self, k: int) -> bool:
        home = self.layout.segment_of.get(k)
        same = home is not None and self.layout.segments[home].tile == self.tile
        fits = self.nodes[k].width in (1, self.n)
        return same and fits and not self.prefetch.has(k, self.tile)

    def source(self, k: int) -> s.Operand:
        key = self.flow.slice(k)
        node = self.nodes[key.root]
        if node.op in ("vector", "context"):
            return self.kernel.constant(key, self.tile)
        if self.prefetch.has(k, self.tile):
            return self.prefetch.value(k, self.tile)
        whole = key.width == node.width == self.n
        if node.op == "state" and whole and node["index"] in self.layout.carried:
            return s.Value(self.kernel.states[node["index"]])
        place = self.kernel.first_row(key.root)
        axes, address = self.kernel.read(key, place, self.tile, bypass_l1=True)
        value = s.Value(self.kernel.variable(key, self.number), axes)
        self.statements.append(s.Load(value, address))
        return value

    def name(self, k: int) -> str:
        return self.kernel.variable(self.flow.slice(k), self.tile)


def negated(condition: str) -> str:
    return f"not ({condition})" if " " in condition else f"not {condition}"
