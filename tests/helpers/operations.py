"""The operations of graphs, each with arguments that it is defined for."""

from typing import Any

from metarnn.cells import Map
from metarnn.graph import Builder, Graph, check_graph
from metarnn.graph.ops import OPS, Op

ELEMENTWISE = {name: op for name, op in OPS.items() if op.elementwise}
UNARY = {name: op for name, op in ELEMENTWISE.items() if op.arity == 1 and not op.attributes}
EXAMPLES = {"start": 1, "stop": 5, "times": 2, "eps": 1e-2}


def attributes(op: Op) -> dict[str, Any]:
    """Values for an operation's attributes, on rows of at least 6."""
    return {name: EXAMPLES.get(name, 1.5) for name in op.attributes}


def arguments(builder: Any, op: Op, rows: list[int]) -> list[int]:
    """For each row one that the operation is defined for; what divides is no small number."""

    def above_one(row: int) -> int:
        return builder.add("add", builder.number(1.5), builder.add("sigmoid", row))

    late = op.name == "div"
    return [above_one(a) if op.positive or (late and k) else a for k, a in enumerate(rows)]


def every_operation(width: int = 6) -> Graph:
    """A step with each elementwise operation, of values around 1."""
    maps = {"x": Map(3, width), "h": Map(width, width, recurrent=True)}
    b = Builder(maps)
    x, h = b.add("input", width=3, name="x"), b.add("state", width=width, index=0)
    wx = b.add("linear", x, map="x", start=0, stop=3, bias=True)
    wh = b.add("linear", h, map="h", start=0, stop=width, bias=True)
    rows = [b.add("add", wx, wh), b.add("tanh", wh), b.add("sub", wx, h)]
    total = h
    for op in ELEMENTWISE.values():
        found = b.add(op.name, *arguments(b, op, rows[: op.arity]), **attributes(op))
        total = b.add("add", total, found)
    new = b.add("tanh", b.add("mul", total, b.number(1 / len(ELEMENTWISE))))
    return check_graph(b.graph([new], {"y": new}))
