"""Values computed where they are first read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import reduce
from operator import or_

from metarnn.engines.codegen.dataflow import Dataflow, Slice
from metarnn.engines.codegen.statements import (
    Axes,
    Constant,
    Elementwise,
    Operand,
    Statement,
    Value,
)
from metarnn.graph.unrolled import Visit, unrolled


class OnDemand(ABC):
    """Statements that compute values of a step, each once, right before it is first read.

    Asking for a `value` appends to `statements` what is missing for it. Several blocks of code may
    share the `values` that they compute; those of `sources` are each block's own.
    """

    def __init__(self, flow: Dataflow) -> None:
        self.flow, self.nodes = flow, flow.nodes
        self.statements: list[Statement] = []
        self.values: dict[Slice, Operand] = {}
        self.sources: dict[Slice, Operand] = {}

    @abstractmethod
    def computes(self, k: int) -> bool:
        """Whether an elementwise node is computed here."""

    @abstractmethod
    def source(self, k: int) -> Operand:
        """A value that is not computed here, after the statements that load it."""

    def name(self, k: int) -> str:
        """The name of a value that is computed here."""
        return f"v{k}"

    def add(self, k: int, statement: Statement) -> None:
        """Take up a statement that gives node k its value."""
        self.statements.append(statement)

    def value(self, k: int) -> Operand:
        """A node's value, after the statements that compute or load it."""
        return unrolled(self._visit, k)

    def _visit(self, k: int) -> Visit[Operand]:
        node, key = self.nodes[k], self.flow.slice(k)
        if node.op == "number":
            return Constant(node["value"])
        if key in self.values:
            return self.values[key]
        if node.elementwise and self.computes(k):
            args: list[Operand] = []
            for a in node.args:
                args.append((yield a))
            target = self.values[key] = Value(self.name(k), joint(args))
            self.add(k, Elementwise(target, node, tuple(args)))
            return target
        if key not in self.sources:
            self.sources[key] = self.source(k)
        return self.sources[key]


def joint(args: Iterable[Operand]) -> Axes:
    """The axes of what is computed from operands."""
    return reduce(or_, (operand.axes for operand in args), Axes.NONE)
