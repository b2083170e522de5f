"""A cell's graph for states of another width."""

from __future__ import annotations

from dataclasses import replace

from metarnn.cells import check
from metarnn.graph.check import GraphError
from metarnn.graph.graph import Builder, Graph


def rescaled(graph: Graph, width: int) -> Graph:
    """The same step for states of this width: every gate and vector becomes as wide.

    >>> from metarnn.cells import LSTM
    >>> rescaled(trace_cell(LSTM(8, 16)), 32) == trace_cell(LSTM(8, 32))
    True

    That needs a graph whose states are all equally wide, as are gates, vectors and slices.
    """
    check.size("width", width)
    own = set(graph.states)
    if len(own) > 1:
        raise _fixed(f"its states have the widths {sorted(own)}")
    (old,) = own
    if old == width:
        return graph
    builder = Builder({})
    place: list[int] = []
    # Which values consist of rows as wide as the state, however many: those that grow.
    grows = [node.op in ("state", "vector") for node in graph.nodes]
    for k, node in enumerate(graph.nodes):
        args = tuple(place[a] for a in node.args)
        attributes, size = dict(node.attributes), node.width
        if node.op in ("state", "vector"):
            size = _scaled(f"the {node.op} of node {k}", node.width, old, width)
        elif node.op == "number" and node.width == old != 1:
            size, grows[k] = width, True
        elif node.op == "linear":
            m = graph.maps[node["map"]]
            inputs = builder.nodes[args[0]].width
            rows = [_scaled(f"the map {node['map']!r}", gate, old, width) for gate in m.gates]
            made = replace(m, inputs=inputs, rows=tuple(rows) if len(rows) > 1 else rows[0])
            if builder.maps.setdefault(node["map"], made) != made:
                raise _fixed(f"the map {node['map']!r} reads rows of different kinds")
            attributes["stop"], grows[k] = inputs, True
        elif node.args:
            grows[k] = any(grows[a] for a in node.args)
            if grows[k] and node.op == "slice":
                for edge in ("start", "stop"):
                    attributes[edge] = _scaled(f"the slice of node {k}", node[edge], old, width)
            elif grows[k] and not (node.elementwise or node.op in ("join", "norm", "softmax")):
                raise _fixed(f"node {k} ({node.op!r}) mixes the units of a state")
        place.append(builder.add(node.op, *args, width=size, **attributes))
    outputs = {name: place[k] for name, k in graph.outputs.items()}
    builder.maps = {name: builder.maps[name] for name in graph.maps if name in builder.maps}
    return builder.graph([place[k] for k in graph.next_states], outputs, graph.window)


def _scaled(what: str, value: int, old: int, width: int) -> int:
    if value % old:
        raise _fixed(f"{what} has {value}, no multiple of the {old} units of a state")
    return value // old * width


def _fixed(why: str) -> GraphError:
    return GraphError(f"this graph has units of one width only: {why}")
