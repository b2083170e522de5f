"""One step of a cell, as nodes of ONNX: written from its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from torch import Tensor

from metarnn.cells import check
from metarnn.graph import Graph, Node
from metarnn.layers.onnx.builder import Builder

SAME = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "max": "Max",
    "min": "Min",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "relu": "Relu",
    "exp": "Exp",
    "softplus": "Softplus",
    "identity": "Identity",
}


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
        if node.op in SAME:
            return self.b.add(SAME[node.op], *args)
        if node.op == "linear":
            name = node["map"]
            weight = self.weights[f"weight_{name}"][:, node["start"] : node["stop"]]
            bias = self.weights[f"bias_{name}"] if node["bias"] else None
            return self.b.linear(args[0], weight, bias, self.int8)
        write: Callable[..., str] | None = getattr(self, f"_{node.op}", None)
        if write is None:
            check.refuse("cell", node.op, f"operations that ONNX has a form for: {sorted(SAME)}")
        widths = [self.graph.nodes[a].width for a in node.args]
        if not node.elementwise:  # of a whole row: one that all sequences share becomes theirs
            args = [self._row(a, n) for a, n in zip(args, widths, strict=True)]
        return write(*args, **node.attributes)

    def _row(self, value: str, width: int) -> str:
        """[B, width] of what may be [width] or [B, 1]."""
        size = self.b.add("Concat", self.b.batch(self.rows, 0), self.b.ints(width), axis=0)
        return self.b.add("Expand", value, size)

    def _greater(self, a: str, b: str) -> str:
        return self.b.add("Cast", self.b.add("Greater", a, b), to=1)

    def _where(self, mask: str, a: str, b: str) -> str:
        zero = self.b.const(np.zeros(1, np.float32))
        return self.b.add("Where", self.b.add("Equal", mask, zero), b, a)

    def _slice(self, x: str, start: int, stop: int) -> str:
        return self.b.slice(x, start, stop, -1)

    def _join(self, *rows: str) -> str:
        return self.b.add("Concat", *rows, axis=-1)

    def _repeat(self, x: str, times: int) -> str:
        apart = self.b.add("Unsqueeze", x, self.b.ints(-1))
        tiled = self.b.add("Tile", apart, self.b.ints(1, 1, times))
        return self.b.add("Reshape", tiled, self.b.ints(0, -1))

    def _fold(self, x: str, times: int) -> str:
        apart = self.b.add("Reshape", x, self.b.ints(0, -1, times))
        return self.b.add("ReduceSum", apart, self.b.ints(-1), keepdims=0)

    def _sum(self, x: str) -> str:
        return self.b.add("ReduceSum", x, self.b.ints(-1), keepdims=1)

    def _mean(self, x: str) -> str:
        return self.b.add("ReduceMean", x, self.b.ints(-1), keepdims=1)

    def _softmax(self, x: str) -> str:
        return self.b.add("Softmax", x, axis=-1)

    def _cumsum(self, x: str) -> str:
        return self.b.add("CumSum", x, self.b.const(np.array(1, np.int64)))

    def _cumsum_back(self, x: str) -> str:
        return self.b.add("CumSum", x, self.b.const(np.array(1, np.int64)), reverse=1)

    def _rstd(self, x: str, eps: float) -> str:
        gap = self.b.add("Sub", x, self._mean(x))
        variance = self._mean(self.b.add("Mul", gap, gap))
        small = self.b.const(np.array([eps], np.float32))
        return self.b.add("Reciprocal", self.b.add("Sqrt", self.b.add("Add", variance, small)))

    def _norm(self, x: str, eps: float) -> str:
        return self.b.add("Mul", self.b.add("Sub", x, self._mean(x)), self._rstd(x, eps))
