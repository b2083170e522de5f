"""The values of a scan: those of many steps, which a program works on at once."""

from __future__ import annotations

from metarnn.engines.codegen import statements as s
from metarnn.engines.codegen.dataflow import Dataflow
from metarnn.engines.codegen.names import Names
from metarnn.engines.codegen.ondemand import OnDemand
from metarnn.engines.triton import statements as t
from metarnn.engines.triton.addresses import Elements, StepUnits
from metarnn.engines.triton.arguments import Arguments
from metarnn.graph import Graph, affine, depends

RESERVED = (
    "B", "base", "batch", "begin", "blocks", "group", "indices", "last", "mask", "masks", "pid",
    "row", "segment", "segments", "sequence", "span", "steps", "stop", "stride", "t", "tl",
    "triton", "units",
)  # fmt: skip


class ScanGraph:
    """A graph that is linear in its state, and what its values and arrays are called."""

    def __init__(self, graph: Graph, backward: bool, *, readable: bool) -> None:
        self.graph, self.backward = affine(graph), backward
        self.flow, self.width = Dataflow(self.graph), max(graph.states)
        self.names = Names(self.flow, readable=readable, backward=backward, reserved=RESERVED)
        self.states = [self.names.unique(name) for name in self.names.states]
        self.arguments = Arguments(self.graph, self.names)
        states = (k for k, node in enumerate(self.graph.nodes) if node.op == "state")
        self.dependent = depends(self.graph, states)  # on a state


class Window:
    """Steps that a program works on at once: what no state enters is computed before the rest."""

    def __init__(self, scan: ScanGraph) -> None:
        self.scan, self.names = scan, scan.names.scope()
        self.widths: dict[str, int] = {}  # of the arrays with a row for every step
        self.loads: list[s.Statement] = []
        self.independent: list[s.Statement] = []


class Step(OnDemand):
    """The values of one step."""

    def __init__(self, window: Window, j: int) -> None:
        super().__init__(window.scan.flow)
        self.window, self.scan, self.j = window, window.scan, j
        self.valid = f"valid_{j}"  # whether there is such a step

    def parts(self, k: int) -> list[tuple[int, s.Operand]]:
        """A row as tiles of the hidden width: (where in it that begins, its value)."""
        return [(start, self.value(a)) for start, a in self.flow.parts(k)]

    def elements(
        self, array: str, width: int, start: int, mask: str, wide: bool = True, after: int = 0
    ) -> Elements:
        """Elements of the row of this step, or of one that many steps after it."""
        name = array.removesuffix("_ptr")
        self.window.widths[name] = width
        sign = "-" if self.scan.backward else "+"
        base = f"rows_{name} {sign} {self.j + after} * stride_{name}"
        units = StepUnits(mask, f"offset_{name}", wide)
        return Elements(base, width, start, True, array, units)

    def apply(self, i: int, a: s.Operand, b: s.Operand) -> None:
        """Compute the next of a state from what is there already: a and b."""
        k = self.scan.graph.next_states[i]
        if k in self.scan.dependent:
            new = self.values[self.flow.slice(k)] = s.Value(self.name(k), s.Axes.UNITS)
            text = f"{{0}} * {self.scan.states[i]} + {{1}}"
            self.statements.append(s.Let(new.name, text, (a, b)))

    # On demand ----------------------------------------------------------------------------

    def add(self, k: int, statement: s.Statement) -> None:
        dependent = k in self.scan.dependent
        (self.statements if dependent else self.window.independent).append(statement)

    def computes(self, k: int) -> bool:
        return True

    def name(self, k: int) -> str:
        return self._unique(self.scan.names.value(k))

    def source(self, k: int) -> s.Operand:
        root, start, width = self.flow.slice(k)
        node, scan = self.nodes[root], self.scan
        if node.op == "state":
            return s.Value(scan.states[node["index"]], s.Axes.UNITS)
        wide = width > 1 or scan.width == 1
        array = scan.arguments.pointer(node.op, node["name"])
        if node.op == "input":
            mask = f"{self.valid} & mask" if wide else self.valid
            place = self.elements(array, node.width, start, mask, wide)
        else:
            rows = f"{array} + sequence * {node.width}" if node.op == "context" else array
            units = StepUnits("mask" * wide, wide=wide)
            place = Elements(rows, node.width, start, True, array, units)
        name = scan.names.array(node.op, node["name"]) + (f"_{start}" if width < node.width else "")
        value = s.Value(self._unique(name), s.Axes.UNITS if wide else s.Axes.NONE)
        raw = s.Value(self.window.names.unique(f"{value.name}_raw"))
        self.window.loads.append(t.RawLoad(raw, place))
        self.add(k, s.Let(value.name, f"{raw.name}.to(tl.float32)"))
        return value

    def _unique(self, base: str) -> str:
        return self.window.names.unique(f"{base}_{self.j}")
