"""The backward pass of a step, as a graph: one adjoint rule for each operation.

A loop that runs this graph from the last step to the first carries the adjoints of the states.
From the forward pass it reads only states and the results of matrix products ("pre-activations"),
and computes the elementwise rest again. It leaves weight gradients out: it puts out, for each
product, the adjoint of its result and (where that is no state) its argument, so that after the
loop dW is one matrix product over all time steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from metarnn.graph.derive import depends, sink_slices
from metarnn.graph.graph import Builder, Graph


@dataclass(frozen=True)
class Reverse:
    """The reverse of a loop's graph, and how its inputs and outputs are called.

    Inputs   the forward inputs under their names; `before.k`, state k before the step;
             `product.k`, the result of product k; `grad.NAME`, the adjoint of output NAME.
    States   the adjoints of the states after the step.
    Outputs  `dinput.NAME`, `dvector.NAME`, `dcontext.NAME`: adjoints, to be summed over time and
             batch where the forward value is shared over them; `dproduct.k`, the adjoint of
             product k's result; `argument.k`, its argument.
    """

    graph: Graph
    products: tuple[int, ...]  # product k is this node of the forward graph


def reverse(graph: Graph, wanted: Iterable[str] = ()) -> Reverse:
    """The backward pass of a step, with adjoints of the inputs and contexts named in `wanted`."""
    wanted = set(wanted)
    nodes = graph.nodes
    products = tuple(k for k, n in enumerate(nodes) if n.op == "linear")
    builder = Builder(graph.maps)
    value: dict[int, int] = {}  # the forward values, computed again
    for k, node in enumerate(nodes):
        if node.op == "linear":
            name = f"product.{products.index(k)}"
            value[k] = builder.add("input", width=node.width, name=name)
        elif node.op == "state":
            value[k] = builder.add("input", width=node.width, name=f"before.{node['index']}")
        else:
            value[k] = builder.copy(node, tuple(value[a] for a in node.args))

    live = depends(graph, (k for k, n in enumerate(nodes) if n.op in ("state", "vector", "linear")
                           or n.attributes.get("name") in wanted))  # fmt: skip
    # For each forward value the adjoints that have come in so far: (start, stop, node).
    pieces: dict[int, list[tuple[int, int, int]]] = {k: [] for k in live}

    def receive(k: int, adjoint: int, start: int = 0) -> None:
        width = builder.nodes[adjoint].width
        if k in live:
            pieces[k].append((start, start + width, adjoint))

    def collected(k: int) -> int | None:
        """The sum of what came in for value k: piecewise, since slices bring parts."""
        if not pieces[k]:
            return None
        edges = sorted({0, nodes[k].width, *(e for a, b, _ in pieces[k] for e in (a, b))})
        parts = []
        for a, b in pairwise(edges):
            total = None
            for start, stop, adjoint in pieces[k]:
                if start <= a and b <= stop:
                    if (start, stop) != (a, b):
                        adjoint = builder.add("slice", adjoint, start=a - start, stop=b - start)
                    total = adjoint if total is None else builder.add("add", total, adjoint)
            parts.append(builder.number(0, b - a) if total is None else total)
        return parts[0] if len(parts) == 1 else builder.add("join", *parts)

    for k, node in enumerate(graph.next_states):
        receive(node, builder.add("state", width=nodes[node].width, index=k))
    for name, node in graph.outputs.items():
        receive(node, builder.add("input", width=nodes[node].width, name=f"grad.{name}"))

    outputs: dict[str, int] = {}
    final: dict[int, int] = {}
    for k in sorted(live, reverse=True):
        node, adjoint = nodes[k], collected(k)
        if node.op == "state":
            final[node["index"]] = builder.number(0, node.width) if adjoint is None else adjoint
        elif node.source:
            if node.op == "vector" or node["name"] in wanted:
                zero = builder.number(0, node.width)
                outputs[f"d{node.op}.{node['name']}"] = zero if adjoint is None else adjoint
        elif adjoint is None:
            continue
        elif node.op == "linear":
            number, argument = products.index(k), node.args[0]
            outputs[f"dproduct.{number}"] = adjoint
            if nodes[argument].op != "state":
                outputs[f"argument.{number}"] = value[argument]
            if argument in live:
                span = {"map": node["map"], "start": node["start"], "stop": node["stop"]}
                back = builder.add("linear", adjoint, bias=False, transposed=True, **span)
                receive(argument, back)
        else:
            for a, (start, piece) in zip(
                node.args, _adjoints(builder, k, graph, value, adjoint, live), strict=True
            ):
                if a in live:
                    receive(a, _narrowed(builder, piece, nodes[a].width), start)
    states = [k for k, n in enumerate(nodes) if n.op == "state"]
    for k in states:
        final.setdefault(nodes[k]["index"], builder.number(0, nodes[k].width))
    for index, width in enumerate(graph.states):
        final.setdefault(index, builder.number(0, width))
    back = builder.graph([final[k] for k in range(len(graph.states))], outputs)
    return Reverse(sink_slices(back), products)


def _narrowed(builder: Builder, node: int, width: int) -> int:
    """An adjoint for a value of that width: one number was repeated, so its adjoints add up."""
    return builder.add("sum", node) if width == 1 and builder.nodes[node].width > 1 else node


def _adjoints(
    b: Builder, k: int, graph: Graph, value: dict[int, int], g: int, live: set[int]
) -> list[tuple[int, int]]:
    """For each argument of node k (start, adjoint); `start` is where in the argument it belongs."""
    node = graph.nodes[k]
    y, args = value[k], [value[a] for a in node.args]

    def add(op: str, *operands: int, **attributes: Any) -> int:
        return b.add(op, *operands, **attributes)

    one, zero = b.number(1), b.number(0)
    # Only what is asked for is built: an adjoint for a dead argument would be dead weight.
    rules: dict[str, list[Callable[[], int]]] = {
        "add": [lambda: g, lambda: g],
        "sub": [lambda: g, lambda: add("sub", zero, g)],
        "mul": [lambda: add("mul", g, args[1]), lambda: add("mul", g, args[0])],
        "div": [
            lambda: add("div", g, args[1]),
            lambda: add("sub", zero, add("div", add("mul", g, y), args[1])),
        ],
        "max": [
            lambda: add("sub", g, add("mul", g, add("greater", args[1], args[0]))),
            lambda: add("mul", g, add("greater", args[1], args[0])),
        ],
        "min": [
            lambda: add("sub", g, add("mul", g, add("greater", args[0], args[1]))),
            lambda: add("mul", g, add("greater", args[0], args[1])),
        ],
        "greater": [lambda: zero, lambda: zero],
        "where": [
            lambda: zero,
            lambda: add("where", args[0], g, zero),
            lambda: add("where", args[0], zero, g),
        ],
        "sigmoid": [lambda: add("mul", g, add("mul", y, add("sub", one, y)))],
        "tanh": [lambda: add("mul", g, add("sub", one, add("mul", y, y)))],
        "relu": [lambda: add("mul", g, add("greater", args[0], zero))],
        "exp": [lambda: add("mul", g, y)],
        "softplus": [lambda: add("mul", g, add("sigmoid", args[0]))],
        "identity": [lambda: g],
        "slice": [lambda: g],
        "repeat": [lambda: add("fold", g, times=node["times"])],
        "fold": [lambda: add("repeat", g, times=node["times"])],
        "sum": [lambda: _spread(b, g, graph.nodes[node.args[0]].width)],
        "mean": [
            lambda: _spread(
                b,
                add("mul", g, b.number(1 / graph.nodes[node.args[0]].width)),
                graph.nodes[node.args[0]].width,
            )
        ],
        "softmax": [lambda: add("mul", y, add("sub", g, add("sum", add("mul", g, y))))],
        "cumsum": [lambda: add("cumsum_back", g)],
        "cumsum_back": [lambda: add("cumsum", g)],
        # y = (x - mean) / std: g - mean(g) - y mean(g y), over std.
        "norm": [
            lambda: add(
                "mul",
                add("rstd", args[0], eps=node["eps"]),
                add(
                    "sub",
                    add("sub", g, add("mean", g)),
                    add("mul", y, add("mean", add("mul", g, y))),
                ),
            )
        ],
    }
    if node.op == "rstd":  # y = 1 / std: -y³ (x - mean) / n
        n = graph.nodes[node.args[0]].width
        cube = add("mul", y, add("mul", y, y))
        centred = add("sub", args[0], add("mean", args[0]))
        return [(0, add("mul", add("mul", add("mul", g, cube), b.number(-1 / n)), centred))]
    if node.op == "join":
        found, offset = [], 0
        for a in node.args:
            width = graph.nodes[a].width
            found.append((0, add("slice", g, start=offset, stop=offset + width)))
            offset += width
        return found
    if node.op not in rules:
        raise ValueError(f"{node.op} has no adjoint")
    start = node["start"] if node.op == "slice" else 0
    # An adjoint is as wide as the result; a wider zero or number in it counts as repeated.
    return [
        (start, rule()) if a in live else (0, g)
        for a, rule in zip(node.args, rules[node.op], strict=True)
    ]


def _spread(b: Builder, node: int, width: int) -> int:
    return b.add("mul", node, b.number(1, width)) if width > 1 else node
