"""What follows from a graph for every device: what leaves the loop, and what order is left in it.

A step is cut in three. `before` needs no state, so it is computed for all time steps at once;
`loop` is what must wait; `after` is needed by no state. Cheap elementwise work stays in the loop
even where it could leave: there it costs no memory traffic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metarnn.graph.graph import Builder, Graph


@dataclass(frozen=True)
class Parts:
    """A graph cut in three.

    `full` is the graph itself, rewritten so that products of joined rows are split. Node
    hoisted[name] of it is computed before the loop and enters the loop as the input `name`;
    node kept[name] leaves the loop as the output `name`, and with the others all results of the
    full graph can be computed after it.
    """

    full: Graph
    loop: Graph
    hoisted: dict[str, int]
    kept: dict[str, int]


@dataclass(frozen=True)
class Stage:
    """Matrix products that can run side by side, then everything that needs no further one."""

    products: tuple[int, ...]
    rest: tuple[int, ...]


def cut(graph: Graph, products_only: bool = False) -> Parts:
    """Cut a step into what runs before, in and after the loop over time.

    With `products_only` norms and the like stay in the loop, too, unless a product before it needs
    them.
    """
    sunk = sink_slices(graph)
    whole = split_products(sunk)
    if whole != sunk:  # what parts of products are added up to may be cut into gates
        whole = sink_slices(whole)
    bound = depends(whole, (k for k, n in enumerate(whole.nodes) if n.op == "state"))
    heavy = {
        k for k, n in enumerate(whole.nodes) if not (n.elementwise or n.source) and n.op != "slice"
    }
    carried = whole.needed(whole.next_states)

    early = {k for k in heavy - bound if not products_only or whole.nodes[k].op == "linear"}
    first = whole.needed(early)  # computed before the loop
    late = depends(whole, heavy & bound - carried) - carried  # and after it
    in_loop = whole.needed(
        {*whole.next_states, *_arguments(whole, late), *whole.outputs.values()} - late
    )
    kept_nodes = sorted(({*_arguments(whole, late), *whole.outputs.values()} - late) & in_loop)

    hoisted: dict[str, int] = {}
    builder = Builder(whole.maps)
    place: dict[int, int] = {}
    for k, node in enumerate(whole.nodes):
        if k not in in_loop or k in late:
            continue
        if k in first and not node.source and (k in heavy or not node.elementwise):
            name = f"hoisted.{len(hoisted)}"
            hoisted[name] = k
            place[k] = builder.add("input", width=node.width, name=name)
        else:
            place[k] = builder.copy(node, tuple(place[a] for a in node.args))
    kept = {f"kept.{k}": k for k in kept_nodes}
    loop = builder.graph(
        [place[k] for k in whole.next_states], {n: place[k] for n, k in kept.items()}, whole.window
    )
    inputs = loop.named("input")
    return Parts(whole, loop, {n: k for n, k in hoisted.items() if n in inputs}, kept)


def stages(graph: Graph) -> list[Stage]:
    """The order of work in one step: products, the rest, products, the rest, …

    A product runs as early as it can, anything else as late as its first use allows. What is only a
    result goes to the last stage that has rows of its width anyway: a stage of one width is fast.
    """
    nodes = graph.nodes
    depth: list[int] = []
    for node in nodes:
        depth.append(max((depth[a] for a in node.args), default=0) + (node.op == "linear"))
    last = max(depth, default=0)
    due = _due(graph, depth, {})
    rows = {(due[k], n.width) for k, n in enumerate(nodes) if not n.source and due[k] == depth[k]}
    read = {a for node in nodes for a in node.args}
    unread = {}
    for k, node in enumerate(nodes):
        if k not in read and node.op != "linear":
            levels = range(last, depth[k] - 1, -1)
            unread[k] = next((level for level in levels if (level, node.width) in rows), last)
    due = _due(graph, depth, unread)
    found = []
    for level in range(last + 1):
        products = [k for k, n in enumerate(nodes) if n.op == "linear" and depth[k] == level]
        rest = [
            k for k, n in enumerate(nodes)
            if not n.source and n.op != "linear" and due[k] == level
        ]  # fmt: skip
        found.append(Stage(tuple(products), tuple(rest)))
    return [stage for stage in found if stage.products or stage.rest]


def _due(graph: Graph, depth: list[int], unread: dict[int, int]) -> list[int]:
    """For each node the stage in which it is first used; of results that nothing reads as told,
    else the last."""
    nodes, last = graph.nodes, max(depth, default=0)
    due = [unread.get(k, last) for k in range(len(nodes))]
    for k in range(len(nodes) - 1, -1, -1):
        ready = depth[k] - 1 if nodes[k].op == "linear" else due[k]
        for a in nodes[k].args:
            due[a] = min(due[a], ready)
    return due


def depends(graph: Graph, on: Iterable[int]) -> set[int]:
    """The nodes that depend on any of `on`, those included."""
    found = set(on)
    for k, node in enumerate(graph.nodes):
        if found.intersection(node.args):
            found.add(k)
    return found


def _arguments(graph: Graph, nodes: Iterable[int]) -> set[int]:
    nodes = set(nodes)
    return {a for k in nodes for a in graph.nodes[k].args} - nodes


def sink_slices(graph: Graph) -> Graph:
    """The same step with slices taken of sources, products and the like only.

    A slice of an elementwise result is that operation on slices, a slice of joined rows a slice of
    one of them: so gates that were split off one long row become rows of the hidden width.
    """
    nodes = graph.nodes
    # First, backwards, which spans of each node are read; then, forwards, each of them is built.
    spans: list[dict[tuple[int, int], None]] = [{} for _ in nodes]
    for k in graph.results:
        spans[k][0, nodes[k].width] = None
    for k in range(len(nodes) - 1, -1, -1):
        for span in spans[k]:
            for a, part in _reads(graph, k, *span):
                spans[a][part] = None

    builder = Builder(graph.maps)
    place: dict[tuple[int, tuple[int, int]], int] = {}
    for k, node in enumerate(nodes):
        for start, stop in spans[k]:
            args = [place[read] for read in _reads(graph, k, start, stop)]
            if node.op == "number":
                made = builder.number(node["value"], stop - start)
            elif node.op in ("slice", "identity") or (node.op == "join" and len(args) == 1):
                made = args[0]
            elif node.elementwise or node.op == "join":
                made = builder.add(node.op, *args, **node.attributes)
            else:
                made = builder.copy(node, tuple(args))
                if (start, stop) != (0, node.width):
                    made = builder.add("slice", made, start=start, stop=stop)
            place[k, (start, stop)] = made
    whole = [place.get((k, (0, node.width)), -1) for k, node in enumerate(nodes)]
    outputs = {name: whole[k] for name, k in graph.outputs.items()}
    return builder.graph([whole[k] for k in graph.next_states], outputs, graph.window)


def _reads(graph: Graph, k: int, start: int, stop: int) -> list[tuple[int, tuple[int, int]]]:
    """What numbers [start, stop) of node k are made of: (argument, (start, stop)) each."""
    node = graph.nodes[k]
    if node.op == "slice":
        return [(node.args[0], (node["start"] + start, node["start"] + stop))]
    if node.elementwise:
        widths = [graph.nodes[a].width for a in node.args]
        spans = [(0, 1) if width == 1 else (start, stop) for width in widths]
        return list(zip(node.args, spans, strict=True))
    if node.op != "join":
        return [(a, (0, graph.nodes[a].width)) for a in node.args]
    found, offset = [], 0
    for a in node.args:
        end = offset + graph.nodes[a].width
        if offset < stop and start < end:
            found.append((a, (max(start, offset) - offset, min(stop, end) - offset)))
        offset = end
    return found


def split_products(graph: Graph) -> Graph:
    """W [x; h] becomes W_x x + W_h h, so that the part without a state can leave the loop."""
    bound = depends(graph, (k for k, n in enumerate(graph.nodes) if n.op == "state"))
    builder = Builder(graph.maps)
    place: list[int] = []
    for node in graph.nodes:
        args = tuple(place[a] for a in node.args)
        joined = graph.nodes[node.args[0]] if node.op == "linear" else None
        if joined is None or joined.op != "join" or len({a in bound for a in joined.args}) == 1:
            place.append(builder.copy(node, args))
            continue
        total, offset = None, node["start"]
        for a in joined.args:
            width = graph.nodes[a].width
            attributes = {"map": node["map"], "start": offset, "stop": offset + width}
            part = builder.add(
                "linear", place[a], bias=node["bias"] and total is None, **attributes
            )
            total = part if total is None else builder.add("add", total, part)
            offset += width
        assert total is not None
        place.append(total)
    outputs = {name: place[k] for name, k in graph.outputs.items()}
    return builder.graph([place[k] for k in graph.next_states], outputs, graph.window)
