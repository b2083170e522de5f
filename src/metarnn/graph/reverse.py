"""The backward pass of a step, as a graph: each operation's `vjp`, traced.

A loop that runs this graph from the last step to the first carries the adjoints of the states.
From the forward pass it reads only states and the results of matrix products, or what was added to
them ("pre-activations"), and computes the elementwise rest again. It leaves weight gradients out:
it puts out, for each product, the adjoint of its result and (where that is no state) its argument,
so that after the loop dW is one matrix product over all time steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from inspect import signature
from itertools import accumulate, pairwise
from typing import Any

from metarnn.graph.derive import depends, sink_slices
from metarnn.graph.graph import Builder, Graph
from metarnn.graph.ops import OPS
from metarnn.graph.trace import Value


@dataclass(frozen=True)
class Reverse:
    """The reverse of a loop's graph, and how its inputs and outputs are called.

    Inputs   the forward inputs under their names; `before.k`, state k before the step;
             `product.k`, the saved row k, by default the result of product k;
             `grad.NAME`, the adjoint of output NAME.
    States   the adjoints of the states after the step.
    Outputs  `dinput.NAME`, `dvector.NAME`, `dcontext.NAME`: adjoints, to be summed over time and
             batch where the forward value is shared over them; `dproduct.k`, the adjoint of
             product k's result; `argument.k`, its argument.
    """

    graph: Graph
    products: tuple[int, ...]  # product k is this node of the forward graph


Saved = tuple[tuple[int, ...], ...]  # nodes whose values are saved, side by side in one row each


def preactivations(graph: Graph) -> Saved:
    """What a forward pass has to save: the products, each after all that is only added to it.

    A product that is read in one sum and nowhere else need not be known, nor need what it is added
    to: their derivatives do without. So the drive of a step is not kept beside its products.
    """
    users: list[list[int]] = [[] for _ in graph.nodes]
    for user, node in enumerate(graph.nodes):
        for a in node.args:
            users[a].append(user)

    def last(k: int) -> int:
        while len(users[k]) == 1 and k not in graph.results:
            (user,) = users[k]
            node = graph.nodes[user]
            if node.op not in ("add", "sub") or node.width != graph.nodes[k].width:
                break
            k = user
        return k

    found: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for k, node in enumerate(graph.nodes):
        if node.op == "linear":
            sliced = users[k] and all(graph.nodes[user].op == "slice" for user in users[k])
            ends = [last(user) for user in users[k]] if sliced else [last(k)]
            if sliced and any(graph.nodes[end].op == "slice" for end in ends):
                ends = [k]
            fresh = tuple(end for end in dict.fromkeys(ends) if end not in seen)
            seen.update(fresh)
            found += [fresh] if fresh else []
    return tuple(found)


class _Values(dict[int, int]):
    """The forward values, as nodes of the backward graph: saved ones are read, others computed."""

    def __init__(self, graph: Graph, builder: Builder, saved: Saved) -> None:
        super().__init__()
        self.nodes, self.builder, self.saved = graph.nodes, builder, saved
        self.row = {k: i for i, group in enumerate(saved) for k in group}

    def __missing__(self, k: int) -> int:
        builder, pending = self.builder, [k]
        while pending:  # not recursive: a step may be a chain of thousands
            last = pending[-1]
            node = self.nodes[last]
            missing = [a for a in node.args if a not in self]
            if last in self:
                pending.pop()
            elif last in self.row:
                self._read(self.row[last])
            elif node.op == "state":
                self[last] = builder.add("input", width=node.width, name=f"before.{node['index']}")
            elif missing and node.op != "linear":
                pending += reversed(missing)
            else:
                assert node.op != "linear", "a product that is needed must be saved"
                self[last] = builder.copy(node, tuple(self[a] for a in node.args))
        return self[k]

    def _read(self, row: int) -> None:
        """All nodes of a saved row."""
        widths = [self.nodes[k].width for k in self.saved[row]]
        whole = self.builder.add("input", width=sum(widths), name=f"product.{row}")
        start = 0
        for k, width in zip(self.saved[row], widths, strict=True):
            span = {"start": start, "stop": start + width}
            self[k] = whole if len(widths) == 1 else self.builder.add("slice", whole, **span)
            start += width


def reverse(graph: Graph, wanted: Iterable[str] = (), saved: Saved | None = None) -> Reverse:
    """The backward pass of a step, with adjoints of the inputs and contexts named in `wanted`.

    `saved` says what the forward pass keeps: the results of all products, if not given.
    """
    wanted = set(wanted)
    nodes = graph.nodes
    products = tuple(k for k, n in enumerate(nodes) if n.op == "linear")
    builder = Builder(graph.maps)
    value = _Values(graph, builder, tuple((k,) for k in products) if saved is None else saved)

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
    builder: Builder, k: int, graph: Graph, value: _Values, g: int, live: set[int]
) -> list[tuple[int, int]]:
    """For each argument of node k (start, adjoint); `start` is where in the argument it belongs."""
    node = graph.nodes[k]
    if node.op == "slice":
        return [(node["start"], g)]
    if node.op == "join":
        edges = [0, *accumulate(graph.nodes[a].width for a in node.args)]
        return [(0, builder.add("slice", g, start=a, stop=b)) for a, b in pairwise(edges)]
    rules = OPS[node.op].vjp
    if rules is None:
        raise ValueError(f"{node.op} has no adjoint")

    def operand(name: str) -> Any:
        """What a parameter of a rule stands for: see `Op`. A forward value is computed for it."""
        if name in node.attributes:
            return node[name]
        if name == "n":
            return graph.nodes[node.args[0]].width
        if name == "g":
            return Value(builder, g)
        source = k if name == "y" else node.args["xabc".index(name) - (name != "x")]
        return Value(builder, value[source])

    # An adjoint is as wide as the result; a wider zero or number in it counts as repeated. Only
    # what is asked for is built: an adjoint for a dead argument would be dead weight.
    found = []
    for a, rule in zip(node.args, rules if isinstance(rules, tuple) else (rules,), strict=True):
        if a in live:
            found.append((0, rule(*map(operand, signature(rule).parameters)).node))
        else:
            found.append((0, g))
    return found
