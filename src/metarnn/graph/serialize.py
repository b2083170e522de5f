"""Graphs as JSON, and back: what comes from a stranger is checked before anything else is done."""

from __future__ import annotations

import json
import math
import os
from typing import Any

from metarnn.cells import Map
from metarnn.graph.check import (
    EXACT,
    MOST_NODES,
    GraphError,
    check_graph,
    refuse,
    shown,
    signature,
)
from metarnn.graph.files import text as read_text
from metarnn.graph.files import write
from metarnn.graph.graph import Graph, Node
from metarnn.graph.sealed import KEY, DamagedError, seal, verify

FORMAT, VERSION = "metarnn-cell", 1
LONGEST = 16 * 2**20  # characters of a document

FIELDS = ("format", "version", "window", "maps", "nodes", "next_states", "outputs")
NODE_FIELDS = ("op", "args", "width")
MAP_FIELDS = ("inputs", "rows", "bias", "recurrent")


def to_json(graph: Graph) -> str:
    """The graph as a JSON document, one line a node.

    >>> print(to_json(trace_cell(Elman(3, 2))))
    {
      "format": "metarnn-cell",
      "version": 1,
    ...
    """
    check_graph(graph)
    maps = {
        name: {"inputs": m.inputs, "rows": m.rows, "bias": m.bias, "recurrent": m.recurrent}
        for name, m in graph.maps.items()
    }
    nodes = [
        {"op": n.op, "args": n.args, "width": n.width}
        | {name: _plain(value) for name, value in n.attributes.items()}
        for n in graph.nodes
    ]
    lists = {
        "maps": [f"{json.dumps(name)}: {json.dumps(m)}" for name, m in maps.items()],
        "nodes": [json.dumps(node, allow_nan=False) for node in nodes],
    }
    indented = {name: ",".join(f"\n    {line}" for line in lines) for name, lines in lists.items()}
    return f"""{{
  "format": "{FORMAT}",
  "version": {VERSION},
  "window": {graph.window},
  "maps": {{{indented["maps"]}
  }},
  "nodes": [{indented["nodes"]}
  ],
  "next_states": {json.dumps(graph.next_states)},
  "outputs": {json.dumps(dict(graph.outputs))}
}}
"""


def from_json(text: str) -> Graph:
    """The graph of a JSON document; a GraphError says what is wrong with one that is damaged."""
    if len(text) > LONGEST:
        refuse("the document", f"has {len(text):,} characters", f"at most {LONGEST:,}")
    try:
        document = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except GraphError:
        raise
    except (ValueError, RecursionError) as error:
        raise GraphError(f"the document is not JSON: {error}") from None
    try:
        document = verify(document)
    except (DamagedError, RecursionError) as error:
        raise GraphError(f"the document {error}") from None
    _fields("the document", document, FIELDS)
    if document["format"] != FORMAT:
        refuse("the document", f"has the format {shown(document['format'])}", repr(FORMAT))
    if type(document["version"]) is not int or document["version"] != VERSION:
        found = f"has the version {shown(document['version'])}"
        refuse("the document", found, f"{VERSION}, which this metarnn reads")
    maps, nodes = document["maps"], document["nodes"]
    if not isinstance(maps, dict):
        refuse("maps", f"is {shown(maps)}", "an object {name: map}")
    if not isinstance(nodes, list) or len(nodes) > MOST_NODES:
        refuse("nodes", f"is {shown(nodes)}", f"a list of at most {MOST_NODES:,}")
    if not isinstance(document["next_states"], list):
        refuse("next_states", f"is {shown(document['next_states'])}", "a list of nodes")
    if not isinstance(document["outputs"], dict):
        refuse("outputs", f"is {shown(document['outputs'])}", "an object {name: node}")
    graph = Graph(
        tuple(_node(k, node) for k, node in enumerate(nodes)),
        tuple(document["next_states"]),
        document["outputs"],
        {name: _map(name, m) for name, m in maps.items()},
        document["window"],
    )
    return check_graph(graph)


def save(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph to a file: beside it, then renamed, so that no half of one is ever there."""
    text = to_json(graph)
    checksum = seal(json.loads(text))[KEY]
    write(path, text.replace("{\n", f'{{\n  "{KEY}": "{checksum}",\n', 1))


def read(path: str | os.PathLike[str]) -> Graph:
    """The graph in a file; a GraphError names the file where it is damaged."""
    try:
        return from_json(read_text(path, 4 * LONGEST))
    except ValueError as error:
        named = "" if os.fspath(path) in str(error) else f"{os.fspath(path)}: "
        raise GraphError(f"{named}{error}") from None


def _plain(value: Any) -> Any:
    """JSON has no infinity: it is written as a string."""
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise GraphError(f"the name {shown(name)} stands twice in one object")
        found[name] = value
    return found


def _no_constant(name: str) -> Any:
    raise GraphError(f"the document is not JSON: {name} is no number there")


def _fields(where: str, found: Any, expected: tuple[str, ...]) -> None:
    if not isinstance(found, dict):
        refuse(where, f"is {shown(found)}", "an object")
    for name in expected:
        if name not in found:
            refuse(where, f"has no {name!r}", f"the fields {list(expected)}")
    for name in found:
        if name not in expected:
            refuse(where, f"has the field {shown(name)}", f"only {list(expected)}")


def _map(name: str, found: Any) -> Map:
    where = f"map {shown(name)}"
    _fields(where, found, MAP_FIELDS)
    rows = found["rows"]
    rows = tuple(rows) if isinstance(rows, list) else rows
    return Map(found["inputs"], rows, found["bias"], found["recurrent"])


def _node(k: int, found: Any) -> Node:
    where = f"node {k}"
    if not isinstance(found, dict) or "op" not in found:
        refuse(where, f"is {shown(found)}", "an object with an 'op'")
    _, attributes = signature(f"{where} ({shown(found['op'])})", found["op"])
    _fields(f"{where} ({found['op']!r})", found, (*NODE_FIELDS, *attributes))
    if not isinstance(found["args"], list):
        refuse(where, f"has the arguments {shown(found['args'])}", "a list of earlier nodes")
    values = {name: found[name] for name in attributes}
    for name, value in values.items():
        if name in EXACT:
            continue
        if value in ("inf", "-inf") and name == "value":
            values[name] = float(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            values[name] = _float(where, name, value)
        elif isinstance(value, float) and not math.isfinite(value):
            refuse(where, f"has {name} too large to hold", "a finite number")
    return Node(found["op"], tuple(found["args"]), found["width"], values)


def _float(where: str, name: str, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        refuse(where, f"has {name} too large to hold", "a finite number")
