"""A cell's time step as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from metarnn.cells import Map
from metarnn.graph import ops


@dataclass(frozen=True)
class Node:
    """One value of a step: an operation on earlier values, or a source.

    Sources: `input` (differs from step to step), `context` (one row a sequence, the same at all
    steps), `state`, `vector` (an elementwise weight), `number` (a constant). `linear` is
    W[:, start:stop] x, plus b if `bias`, with the weight and bias of the map it names; if
    `transposed`, which only derived graphs have, W[:, start:stop]ᵀ x.
    """

    op: str
    args: tuple[int, ...] = ()
    width: int = 1
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.op, self.args, self.width, frozenset(self.attributes.items())))

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    @property
    def elementwise(self) -> bool:
        return self.op in ops.OPS and ops.OPS[self.op].elementwise

    @property
    def source(self) -> bool:
        return self.op in ops.SOURCES


@dataclass(frozen=True)
class Graph:
    """A step: nodes in an order in which each comes after its arguments, and what it results in.

    next_states[k] is the node that becomes state k; outputs are named nodes that leave the step.
    """

    nodes: tuple[Node, ...]
    next_states: tuple[int, ...]
    outputs: Mapping[str, int]
    maps: Mapping[str, Map]
    window: int = 1

    @cached_property
    def _hash(self) -> int:
        named = frozenset(self.outputs.items()), frozenset(self.maps.items())
        return hash((self.nodes, self.next_states, *named, self.window))

    def __hash__(self) -> int:
        return self._hash  # kept: plans are looked up by their cell at every call

    def __getstate__(self) -> dict[str, Any]:
        # Without what is kept: another process hashes strings differently.
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def states(self) -> tuple[int, ...]:
        """The widths of the state parts."""
        return tuple(self.nodes[k].width for k in self.next_states)

    def named(self, op: str) -> dict[str, int]:
        """The sources of one kind, by name: {name: node}."""
        return {node["name"]: k for k, node in enumerate(self.nodes) if node.op == op}

    @property
    def results(self) -> tuple[int, ...]:
        return (*self.next_states, *self.outputs.values())

    def needed(self, results: Iterable[int]) -> set[int]:
        """The nodes that `results` depend on, themselves included."""
        found, todo = set(), list(results)
        while todo:
            k = todo.pop()
            if k not in found:
                found.add(k)
                todo += self.nodes[k].args
        return found


class Builder:
    """Adds nodes one by one; the same operation on the same values is one node."""

    def __init__(self, maps: Mapping[str, Map]) -> None:
        self.maps = dict(maps)
        self.nodes: list[Node] = []
        self._known: dict[Any, int] = {}

    def add(self, op: str, *args: int, width: int | None = None, **attributes: Any) -> int:
        """The index of op(args); width is needed for sources only."""
        if width is None or op not in ops.SOURCES:
            width = self._width(op, args, attributes)
        key = (op, args, width, tuple(sorted(attributes.items())))
        if key not in self._known:
            self.nodes.append(Node(op, args, width, attributes))
            self._known[key] = len(self.nodes) - 1
        return self._known[key]

    def _width(self, op: str, args: tuple[int, ...], attributes: dict[str, Any]) -> int:
        if op == "linear":
            if attributes.get("transposed", False):
                return attributes["stop"] - attributes["start"]
            return self.maps[attributes["map"]].outputs
        found = ops.OPS[op]
        if found.arity not in (-1, len(args)):
            raise ValueError(f"{op} takes {found.arity} values, not {len(args)}")
        return found.result_width([self.nodes[k].width for k in args], attributes)

    def number(self, value: float, width: int = 1) -> int:
        return self.add("number", width=width, value=float(value))

    def copy(self, node: Node, args: tuple[int, ...]) -> int:
        return self.add(node.op, *args, width=node.width, **node.attributes)

    def graph(
        self, next_states: Iterable[int], outputs: Mapping[str, int], window: int = 1
    ) -> Graph:
        """The graph, without the nodes that nothing needs. Unused states stay."""
        full = Graph(tuple(self.nodes), tuple(next_states), dict(outputs), self.maps, window)
        return pruned(full)


def pruned(graph: Graph) -> Graph:
    """The same graph without nodes that no result needs."""
    keep = sorted(graph.needed(graph.results))
    place = {old: new for new, old in enumerate(keep)}
    nodes = tuple(
        Node(n.op, tuple(place[a] for a in n.args), n.width, n.attributes)
        for n in (graph.nodes[k] for k in keep)
    )
    maps = {name: m for name, m in graph.maps.items()
            if any(n.op == "linear" and n["map"] == name for n in nodes)}  # fmt: skip
    return Graph(
        nodes,
        tuple(place[k] for k in graph.next_states),
        {name: place[k] for name, k in graph.outputs.items()},
        maps,
        graph.window,
    )
