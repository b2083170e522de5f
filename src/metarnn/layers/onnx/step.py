"""One step of a cell, as nodes of ONNX: written from its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from metarnn.cells import check
from metarnn.graph import Graph, Node
from metarnn.graph.ops import OPS
from metarnn.layers.onnx.builder import Builder


class Step:
    """Writes the nodes of a graph whose rows are [B, n]."""

    def __init__(
        self, builder: Builder, graph: Graph, weights: Mapping[str, Tensor], int8: bool = False
    ) -> None:
        self.b, self.graph, self.weights, self.int8 = builder, graph, weights, int8

    def __call__(
        self, inputs: Mapping[str, str], state: Sequence[str], rows: str
    ) -> tuple[list[str], str]:
        """The next state and the output; `rows` is any value whose first dimension is B."""
        found: dict[int, str] = {}
        self.rows = rows
        for k, node in enumerate(self.graph.nodes):
            if node.op == "input":
                found[k] = inputs[node["name"]]
            elif node.op == "state":
                index: int = node["index"]
                found[k] = state[index]
            elif node.op == "vector":
                found[k] = self.b.const(self.weights[node["name"]].float(), node["name"])
            elif node.op == "number":
                found[k] = self.b.const(np.full(node.width, node["value"], np.float32))
            else:
                found[k] = self._node(node, [found[a] for a in node.args])
        new = [found[k] for k in self.graph.next_states]
        sizes = self.graph.states
        new = [self._row(value, n) for value, n in zip(new, sizes, strict=True)]
        y = self.graph.outputs["y"]
        return new, self._row(found[y], self.graph.nodes[y].width)

    def _node(self, node: Node, args: list[str]) -> str:
        if node.op == "linear":
            name = node["map"]
            weight = self.weights[f"weight_{name}"][:, node["start"] : node["stop"]]
            bias = self.weights[f"bias_{name}"] if node["bias"] else None
            return self.b.linear(args[0], weight, bias, self.int8)
        write = OPS[node.op].onnx
        if not write:
            known = [name for name, op in OPS.items() if op.onnx]
            check.refuse("cell", node.op, f"operations that ONNX has a form for: {known}")
        if isinstance(write, str):
            return self.b.add(write, *args)
        widths = [self.graph.nodes[a].width for a in node.args]
        if not node.elementwise:  # of a whole row: one that all sequences share becomes theirs
            args = [self._row(a, n) for a, n in zip(args, widths, strict=True)]
        return write(self.b, *args, **node.attributes)

    def _row(self, value: str, width: int) -> str:
        """[B, width] of what may be [width] or [B, 1]."""
        size = self.b.add("Concat", self.b.batch(self.rows, 0), self.b.ints(width), axis=0)
        return self.b.add("Expand", value, size)
