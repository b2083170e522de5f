"""Segments over rows: each program takes whole sequences, one after the other."""

from __future__ import annotations

from metarnn.engines.codegen import statements as s
from metarnn.engines.codegen.ondemand import OnDemand
from metarnn.engines.triton import statements as t
from metarnn.engines.triton.addresses import Elements, Lanes
from metarnn.engines.triton.builder import Builder, Place, elements
from metarnn.engines.triton.units import Phases


class Rows(OnDemand):
    """A segment over rows. A value of width 1 is a scalar, any other a row."""

    def __init__(self, kernel: Builder, number: int) -> None:
        super().__init__(kernel.layout)
        self.kernel, self.layout, self.number = kernel, kernel.layout, number
        self.segment = self.layout.segments[number]
        self.unsynchronized = False  # whether there are stores since the last barrier

    def phases(self) -> Phases:
        for k in self.segment.operations:
            self._result(k)
        first = "first + group * SEQUENCES"
        start, stop = f"{first} + program", f"{first} + rows"
        body = s.Let("sequence", "index + zero"), *self.statements
        return Phases(exchanged=(s.For("index", start, stop, body, "PROGRAMS"),))

    def _result(self, k: int) -> None:
        places = [place for place, _ in self.kernel.targets(k)]
        for start, part in self.flow.parts(k):
            value = self.value(part)
            for place in places:
                self.statements.append(s.Store(self._elements(k, place, start, part), value))
            for kind, name in self.layout.targets.get(k, ()):
                if kind == "sum":
                    array = self.kernel.pointer("sum", name)
                    total = self._elements(k, Place(array, array), start, part, bypass_l1=False)
                    self.statements.append(s.Accumulate(total, value))
        self.unsynchronized = self.unsynchronized or bool(places)

    def _elements(
        self, k: int, place: Place, start: int, part: int, bypass_l1: bool = True
    ) -> Elements:
        lanes, row = Lanes(self.nodes[part].width), self.nodes[k]
        return elements(place, row.width, start, lanes, row.op == "vector", bypass_l1)

    def computes(self, k: int) -> bool:
        return k in self.segment.operations

    def name(self, k: int) -> str:
        return self.kernel.variable(self.flow.slice(k), ("rows", self.number))

    def source(self, k: int) -> s.Operand:
        node = self.nodes[k]
        value = s.Value(self.name(k), s.Axes.UNITS if node.width > 1 else s.Axes.NONE)
        if node.op in ("slice", "join") or k not in self.segment.operations:
            self.statements.append(s.Load(value, self._in_memory(k)))
            return value
        (argument,) = node.args
        width = self.nodes[argument].width
        if node.op in ("repeat", "fold"):
            self.statements.append(t.Rearrange(value, node, self._in_memory(argument), width))
        else:
            x = self.value(argument)
            self.statements.append(t.RowOperation(value, node, x, width))
        return value

    def _in_memory(self, k: int) -> Elements:
        root, start, _ = self.flow.slice(k)
        if root in self.segment.operations and self.unsynchronized:
            self.statements.append(
                s.Barrier()
            )  # another thread of this program may have written it
            self.unsynchronized = False
        return self._elements(root, self.kernel.first_row(root), start, k)
