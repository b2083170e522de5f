"""Whether a graph is one: everything that runs, prints or draws graphs may rely on these checks.

They cost nothing but the nodes' own number, and nothing is allocated before they have passed.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from metarnn.cells import Map
from metarnn.graph import ops
from metarnn.graph.graph import Graph, Node

MOST_NODES = 10_000
WIDEST = 1_000_000
MOST_WEIGHTS = 10**9
LONGEST_NAME = 100

_repr = reprlib.Repr()
_repr.maxstring = 60


class GraphError(ValueError):
    """A graph is damaged; the message says where, and what was expected there."""


def check_graph(graph: Graph) -> Graph:
    """The graph itself, or a GraphError that names the first thing wrong with it."""
    if not 1 <= len(graph.nodes) <= MOST_NODES:
        refuse("the graph", f"has {len(graph.nodes)} nodes", f"1 to {MOST_NODES:,}")
    if not whole(graph.window, 1, WIDEST):
        refuse("the graph", f"has the window {shown(graph.window)}", "a whole number from 1 on")
    _check_maps(graph.maps)
    for k, node in enumerate(graph.nodes):
        _check_node(graph, k, node)
    _check_results(graph)
    _check_names(graph)
    return graph


def refuse(where: str, found: str, expected: str) -> NoReturn:
    raise GraphError(f"{where} {found}: expected {expected}")


def shown(value: object) -> str:
    """A value for a message, cut short: a stranger's may be long and deep."""
    return _repr.repr(value)


def whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_name(value: object) -> bool:
    """An identifier; no double underscore at its start, since names become attributes."""
    if not isinstance(value, str) or len(value) > LONGEST_NAME:
        return False
    return value.isidentifier() and not value.startswith("__")


def _check_maps(maps: Mapping[str, Map]) -> None:
    total = 0
    for name, m in maps.items():
        where = f"map {shown(name)}"
        if not is_name(name):
            refuse(where, "has a name that is none", "an identifier")
        if not isinstance(m, Map):
            refuse(where, f"is {shown(m)}", "a Map")
        if not whole(m.inputs, 0, WIDEST):
            refuse(where, f"has inputs={shown(m.inputs)}", f"a whole number up to {WIDEST:,}")
        gates = m.rows if isinstance(m.rows, tuple) else (m.rows,)
        if not gates or not all(whole(rows, 1, WIDEST) for rows in gates) or sum(gates) > WIDEST:
            refuse(where, f"has rows={shown(m.rows)}", f"widths from 1 on, together {WIDEST:,}")
        for flag, value in (("bias", m.bias), ("recurrent", m.recurrent)):
            if not isinstance(value, bool):
                refuse(where, f"has {flag}={shown(value)}", "true or false")
        total += m.inputs * m.outputs
        if total > MOST_WEIGHTS:
            refuse(where, f"brings the weights to {total:,}", f"at most {MOST_WEIGHTS:,}")


EXACT = ("name", "map", "index", "start", "stop", "times", "bias")  # all others are floats
FINITE = ("a finite number", lambda v: isinstance(v, float) and math.isfinite(v))
# What an attribute must be that is no finite number; limits beyond the type are checked with the
# widths.
KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("an identifier", is_name),
    "map": ("the name of a map", is_name),
    "index": ("a whole number from 0 on", lambda v: whole(v, 0, MOST_NODES)),
    "start": ("a whole number from 0 on", lambda v: whole(v, 0, WIDEST)),
    "stop": ("a whole number from 0 on", lambda v: whole(v, 0, WIDEST)),
    "times": ("a whole number from 1 on", lambda v: whole(v, 1, WIDEST)),
    "bias": ("true or false", lambda v: isinstance(v, bool)),
    "value": ("a number", lambda v: isinstance(v, float) and not math.isnan(v)),
    "exponent": (
        "a finite number that is no whole one: powers of those are products",
        lambda v: isinstance(v, float) and math.isfinite(v) and v != int(v),
    ),
    "eps": (
        "a finite number, not below 0",
        lambda v: isinstance(v, float) and math.isfinite(v) and v >= 0,
    ),
}


def _check_node(graph: Graph, k: int, node: Node) -> None:
    where = f"node {k} ({shown(node.op)})"
    arity, attributes = signature(where, node.op)
    for a in node.args:
        if not whole(a, 0, k - 1):
            refuse(where, f"has the argument {shown(a)}", "an earlier node")
    if len(node.args) != arity and (arity >= 0 or not node.args):
        refuse(where, f"has {len(node.args)} arguments", str(arity) if arity >= 0 else "some")
    check_attributes(where, node.attributes, attributes)
    if not whole(node.width, 0 if node.op == "input" else 1, WIDEST):
        refuse(where, f"has width {shown(node.width)}", f"a whole number from 1 to {WIDEST:,}")
    widths = [graph.nodes[a].width for a in node.args]
    if node.op == "linear":
        expected = _linear_width(graph, where, node, widths[0])
    elif node.source:
        return
    else:
        if 0 in widths:
            refuse(where, "has an argument of width 0", "one number at least")
        try:
            expected = ops.OPS[node.op].result_width(widths, node.attributes)
        except ValueError as error:
            raise GraphError(f"{where}: {error}") from None
    if node.width != expected:
        refuse(where, f"has width {node.width}", f"{expected}, which follows from its arguments")


def signature(where: str, op: object) -> tuple[int, tuple[str, ...]]:
    """The number of arguments (-1: any but 0) and the attributes of an operation."""
    if isinstance(op, str):
        if op in ops.SOURCES:
            return 0, ops.SOURCES[op]
        if op in ops.OPS:
            return ops.OPS[op].arity, ops.OPS[op].attributes
        if op == "linear":
            return 1, ops.LINEAR
    known = ", ".join([*ops.SOURCES, "linear", *ops.OPS])
    refuse(where, "is no known operation", f"one of {known}")


def check_attributes(where: str, found: Mapping[str, Any], expected: tuple[str, ...]) -> None:
    for name in expected:
        if name not in found:
            refuse(where, f"has no {name!r}", f"the attributes {list(expected)}")
    for name, value in found.items():
        if name not in expected:
            refuse(where, f"has the attribute {shown(name)}", f"only {list(expected)}")
        what, fits = KINDS.get(name, FINITE)
        if not fits(value):
            refuse(where, f"has {name}={shown(value)}", what)


def _linear_width(graph: Graph, where: str, node: Node, width: int) -> int:
    if node["map"] not in graph.maps:
        refuse(where, f"has the map {shown(node['map'])}", f"one of {shown(sorted(graph.maps))}")
    m, start, stop = graph.maps[node["map"]], node["start"], node["stop"]
    if not start <= stop <= m.inputs:
        refuse(where, f"takes columns [{start}, {stop})", f"a part of the map's {m.inputs}")
    if width != stop - start:
        refuse(where, f"multiplies a row of {width}", f"{stop - start}, its number of columns")
    if node["bias"] and not m.bias:
        refuse(where, "adds a bias", f"none: map {node['map']!r} has none")
    return m.outputs


def _check_results(graph: Graph) -> None:
    nodes = graph.nodes
    last = len(nodes) - 1
    if not 1 <= len(graph.next_states) <= MOST_NODES:
        refuse("the graph", f"has {len(graph.next_states)} next states", "at least one")
    for index, k in enumerate(graph.next_states):
        if not whole(k, 0, last):
            refuse(f"next state {index}", f"is node {shown(k)}", f"one of 0 to {last}")
    for name, k in graph.outputs.items():
        if not is_name(name):
            refuse(f"output {shown(name)}", "has a name that is none", "an identifier")
        if not whole(k, 0, last):
            refuse(f"output {name!r}", f"is node {shown(k)}", f"one of 0 to {last}")
    for k in graph.results:
        if nodes[k].width == 0:
            refuse(f"node {k}", "is a result of width 0", "one number at least")
    seen: dict[int, int] = {}
    for k, node in enumerate(nodes):
        if node.op != "state":
            continue
        where, index = f"node {k} ('state')", node["index"]
        if index >= len(graph.next_states):
            refuse(where, f"is state {index}", f"one of {len(graph.next_states)}, counted from 0")
        if index in seen:
            refuse(where, f"is state {index}, which node {seen[index]} is", "one node a state")
        seen[index] = k
        if node.width != graph.states[index]:
            refuse(where, f"has width {node.width}", f"{graph.states[index]}, as the next state")


def _check_names(graph: Graph) -> None:
    taken = {"map " + name for name in graph.maps}
    for k, node in enumerate(graph.nodes):
        if node.op in ("input", "context", "vector"):
            if f"{node.op} {node['name']}" in taken:
                refuse(f"node {k}", f"is a second {node.op} {node['name']!r}", "one of a name")
            taken.add(f"{node.op} {node['name']}")
    weights = {f"{kind}{name}" for name in graph.maps for kind in ("", "weight_")}
    weights |= {f"bias_{name}" for name, m in graph.maps.items() if m.bias}
    for name, k in graph.named("vector").items():
        if name in weights:
            refuse(f"node {k}", f"is a vector {name!r}", "a name that no map and its weights have")
