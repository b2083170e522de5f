"""The operations a cell graph is made of: one record each, a file a family.

Every value is a row of numbers, [..., width]. A function that can be written with other operations
is none of its own: its rule says how.
"""

from __future__ import annotations

from typing import Any

from metarnn.graph.ops import activations, arithmetic, rows, transcendental
from metarnn.graph.ops.op import Op, Rule, Untraceable

_FAMILIES = (arithmetic, transcendental, activations, rows)
OPS: dict[str, Op] = {
    op.name: op for family in _FAMILIES for op in vars(family).values() if isinstance(op, Op)
}
# What stands for a function of torch during a trace.
RULES: dict[Any, Rule] = {function: op for op in OPS.values() for function in op.functions}
for _family in (arithmetic, activations, rows):
    RULES |= {f: rule for functions, rule in _family.RULES.items() for f in functions}

SOURCES = {"input": ("name",), "context": ("name",), "state": ("index",), "vector": ("name",),
           "number": ("value",)}  # fmt: skip
LINEAR = ("map", "start", "stop", "bias")

__all__ = ["LINEAR", "OPS", "RULES", "SOURCES", "Op", "Rule", "Untraceable"]
