"""A cell made of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from metarnn.cells import Cell, Drive, Map, State, Theta
from metarnn.cells.norm import initialize
from metarnn.graph.check import GraphError, check_graph, refuse
from metarnn.graph.derive import depends
from metarnn.graph.graph import Builder, Graph, Node
from metarnn.graph.interpret import Schedule
from metarnn.graph.trace import Value, replay


@dataclass(frozen=True)
class Work:
    """What a graph's cell computes when; `drive` are the nodes that leave `drive()`."""

    inputs: dict[str, int]  # their nodes by name
    drive: Schedule
    step: Schedule
    output: Schedule


class GraphCell(Cell):
    """The cell that a graph describes: input `x`, states in their order, output `y`. Other inputs
    are what a step is `given` beside x, as the graphs of cells with generated weights have.

    >>> cell = GraphCell(trace_cell(LSTM(3, 4)))
    >>> cell
    GraphCell(input_size=3, hidden_size=4, nodes=19)

    Any graph of a step will do whose output follows from the input and the new states. Two cells
    of equal graphs are equal. `hidden_size` is the width of the first state.
    """

    graph: Graph
    window: int

    def __init__(self, graph: Graph) -> None:
        _check(graph)
        x = graph.named("input").get("x")
        width = 0 if x is None else graph.nodes[x].width
        fields = {
            "input_size": width // graph.window,
            "hidden_size": graph.states[0],
            "graph": graph,
            "window": graph.window,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        _ = self._work  # an output that cannot be computed is refused now

    def __repr__(self) -> str:
        sizes = f"input_size={self.input_size}, hidden_size={self.hidden_size}"
        return f"GraphCell({sizes}, nodes={len(self.graph.nodes)})"

    @property
    def maps(self) -> dict[str, Map]:
        return dict(self.graph.maps)

    @property
    def vectors(self) -> dict[str, int]:
        return {name: self.graph.nodes[k].width for name, k in self.graph.named("vector").items()}

    @property
    def states(self) -> tuple[int, ...]:
        return self.graph.states

    @property
    def output_size(self) -> int:
        return self.graph.nodes[self.graph.outputs["y"]].width

    @property
    def extra_inputs(self) -> dict[str, int]:
        inputs = self.graph.named("input")
        return {name: self.graph.nodes[k].width for name, k in inputs.items() if name != "x"}

    @cached_property
    def _work(self) -> Work:
        graph = self.graph
        inputs = graph.named("input")
        bound = depends(graph, (k for k, n in enumerate(graph.nodes) if n.op == "state"))
        timed = depends(graph, inputs.values()) - bound
        new = set(graph.next_states)
        # An output reads the new states as they are after lengths, resets and zoneout.
        ready = timed - depends(graph, new)
        y = graph.outputs["y"]
        first = _met(graph, graph.next_states, timed) | _met(graph, [y], ready | new) - new
        output = Schedule(graph, [y], first | new)
        for k in output.sources:
            if graph.nodes[k].op == "state":
                old = f"state {graph.nodes[k]['index']} before the step"
                refuse("output 'y'", f"depends on {old}", "one of the input and the new states")
        drive = Schedule(graph, sorted(first), inputs.values())
        return Work(inputs, drive, Schedule(graph, graph.next_states, first), output)

    def drive(self, theta: Theta, x: Any) -> Drive:
        work = self._work
        rows = x if self.extra_inputs else {"x": x}
        known = {k: rows[name] for name, k in work.inputs.items()}
        found = self._run(work.drive, theta, known, rows["x"])
        return {f"node_{k}": value for k, value in zip(work.drive.results, found, strict=True)}

    def step(self, theta: Theta, drive: Drive, state: State) -> State:
        work = self._work
        known = {k: drive[f"node_{k}"] for k in work.drive.results}
        for k in work.step.sources:
            node = self.graph.nodes[k]
            if node.op == "state":
                known[k] = state[node["index"]]
        return tuple(self._run(work.step, theta, known, state[0]))

    def output(self, theta: Theta, drive: Drive, state: State) -> Tensor:
        work = self._work
        known = {k: drive[f"node_{k}"] for k in work.drive.results}
        known |= dict(zip(reversed(self.graph.next_states), reversed(state), strict=True))
        return self._run(work.output, theta, known, state[0])[0]

    def _run(self, schedule: Schedule, theta: Theta, known: Any, like: Tensor) -> list[Any]:
        def apply(node: Node, row: Tensor) -> Tensor:
            return getattr(theta, node["map"])(row)

        for k in schedule.sources:
            node = self.graph.nodes[k]
            if node.op == "vector":
                known[k] = getattr(theta, node["name"])
        if isinstance(like, Value):
            replay(self.graph, schedule.order, known, apply, like.builder)
            return [known[k] for k in schedule.results]
        # What depends on weights alone has no leading dimensions yet.
        lead = like.shape[:-1]
        return [value.expand(*lead, value.shape[-1]) for value in schedule(known, apply, like)]

    def initialize(self, weights: Mapping[str, Tensor]) -> None:
        initialize(weights)

    def resized(self, input_size: int) -> GraphCell:
        """The same cell for inputs of another width, if x enters through linear maps only."""
        if input_size == self.input_size:
            return self
        return GraphCell(_widened(self.graph, input_size * self.window))


def _met(graph: Graph, results: Iterable[int], stop: set[int]) -> set[int]:
    """The nodes of `stop` that a walk from the results back to the sources comes upon first."""
    met, seen, todo = set(), set(), list(results)
    while todo:
        k = todo.pop()
        if k in stop:
            met.add(k)
        elif k not in seen:
            seen.add(k)
            todo += graph.nodes[k].args
    return met


def _check(graph: Graph) -> None:
    """Whether a graph is that of a cell: beyond being one, no contexts, y out, maps whole."""
    check_graph(graph)
    for name, k in graph.named("context").items():
        refuse(f"node {k}", f"is the context {name!r}", "no context: a cell reads inputs")
    if set(graph.outputs) != {"y"}:
        refuse("a cell's graph", f"has the outputs {sorted(graph.outputs)}", "['y']")
    for k, node in enumerate(graph.nodes):
        if node.op == "input" and node["name"] == "x" and node.width % graph.window:
            refuse(f"node {k}", f"has width {node.width}", f"a multiple of window={graph.window}")
        if node.op != "linear":
            continue
        m = graph.maps[node["map"]]
        if (node["start"], node["stop"], node["bias"]) != (0, m.inputs, m.bias):
            found = f"applies a part of the map {node['map']!r}"
            refuse(f"node {k}", found, "the whole, with its bias: that is what a cell is given")


def _widened(graph: Graph, width: int) -> Graph:
    """The graph for an input of another width; the maps that read it change with it."""
    nodes, x = graph.nodes, graph.named("input").get("x")
    if x not in graph.needed(graph.results):  # it ignores its input, whatever that is
        rest = nodes if x is None else nodes[:x]
        other = Node("input", width=width, attributes={"name": "x"})
        return replace(graph, nodes=(*rest, other, *nodes[len(rest) + 1 :]))
    assert x is not None
    widths = {x: width}  # of the nodes that change
    inputs: dict[str, int] = {}  # of the maps that change
    for k, node in enumerate(nodes):
        if not widths.keys() & set(node.args):
            continue
        row = sum(widths.get(a, nodes[a].width) for a in node.args)
        if node.op == "join":
            widths[k] = row
        elif node.op == "linear":
            inputs[node["map"]] = row
        else:
            raise _fixed(f"node {k} ({node.op!r}) uses them directly, not through a linear map")
    if widths.keys() & set(graph.results):
        raise _fixed("they are part of its results")
    for node in nodes:
        if node.op == "linear" and node["map"] in inputs:
            (a,) = node.args
            if widths.get(a, nodes[a].width) != inputs[node["map"]]:
                raise _fixed(f"the map {node['map']!r} reads rows of other kinds too")
    maps = {name: replace(m, inputs=inputs.get(name, m.inputs)) for name, m in graph.maps.items()}
    builder = Builder(maps)
    place: list[int] = []
    for k, node in enumerate(nodes):
        args = tuple(place[a] for a in node.args)
        attributes = dict(node.attributes)
        if node.op == "linear":
            attributes["stop"] = maps[node["map"]].inputs
        made = Node(node.op, args, widths.get(k, node.width), attributes)
        place.append(builder.copy(made, args))
    outputs = {name: place[k] for name, k in graph.outputs.items()}
    return builder.graph([place[k] for k in graph.next_states], outputs, graph.window)


def _fixed(why: str) -> GraphError:
    return GraphError(f"this graph takes inputs of no other width: {why}")
