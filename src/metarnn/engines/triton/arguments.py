"""The arrays that a kernel takes, with names that say what they hold, and their shapes."""

from __future__ import annotations

from metarnn.engines.codegen.names import Names
from metarnn.engines.plan import Key
from metarnn.engines.triton.program import MAILBOX_DEPTH
from metarnn.graph import Graph

SHAPES = {
    "initial": "[B, {n}]",
    "final": "[B, {n}]",
    "state": "[T + 1 or 3, B, {n}], before each step",
    "input": "[T, B, {n}]",
    "output": "[T, B, {n}]",
    "context": "[B, {n}]",
    "vector": "[{n}]",
    "weight": "[{n}, {inputs}]",
    "bias": "[{n}]",
    "sum": "[B, {n}], a sum over time",
    "scratch": "[2, B, {n}], of this step and the last",
    "mailbox": f"[{MAILBOX_DEPTH}, B, {{n}}]",
    "partial_sums": "[groups, 2, receivers, PROGRAMS, BLOCK_B, columns]",
    "packed": "of all products, in the order in which programs read them",
}


class Arguments:
    """The pointers of a kernel, in the order in which they were first asked for."""

    def __init__(self, graph: Graph, names: Names) -> None:
        self.graph, self.names = graph, names
        self._pointers: dict[Key, str] = {}

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(self._pointers)

    def pointer(self, kind: str, name: str) -> str:
        if (kind, name) not in self._pointers:
            self._pointers[kind, name] = self.names.unique(f"{self._base(kind, name)}_ptr")
        return self._pointers[kind, name]

    def name(self, k: int) -> str:
        """What a node is called."""
        node = self.graph.nodes[k]
        if node.op == "state":
            return self.names.states[node["index"]]
        return self.names.array(node.op, node["name"]) if node.source else self.names.value(k)

    def parameters(self) -> list[str]:
        """The lines of a function's head."""
        return [f"{p},  # {self._shape(*key)}" for key, p in self._pointers.items()]

    def _base(self, kind: str, name: str) -> str:
        match kind:
            case "mailbox" | "scratch":
                return f"{self.name(int(name))}_{kind}"
            case "partial_sums":
                return f"partial_sums_{name}"
            case "packed":
                return "packed_weights"
            case _:
                return self.names.array("output" if kind == "sum" else kind, name)

    def _shape(self, kind: str, name: str) -> str:
        graph, n, inputs = self.graph, 0, 0
        match kind:
            case "initial" | "final" | "state":
                n = graph.states[int(name)]
            case "mailbox" | "scratch":
                n = graph.nodes[int(name)].width
            case "weight" | "bias":
                n, inputs = graph.maps[name].outputs, graph.maps[name].inputs
            case "output" | "sum":
                n = graph.nodes[graph.outputs[name]].width
            case "input" | "context" | "vector":
                n = graph.nodes[graph.named(kind)[name]].width
            case _:
                pass
        return SHAPES[kind].format(n=n, inputs=inputs)
