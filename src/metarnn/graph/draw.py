"""A step as a picture, SVG and nothing else: folded, with its recurrent edges, or over T steps."""

from __future__ import annotations

from metarnn.graph.check import GraphError, check_graph
from metarnn.graph.formula import state_names
from metarnn.graph.graph import Graph, Node
from metarnn.graph.layout import Layout, Point, arrange
from metarnn.graph.ops import OPS
from metarnn.graph.unfold import unfolded
from metarnn.graph.vector import BLUE, GREEN, Canvas

MOST_DRAWN = 400
MARGIN, LANE = 24.0, 14.0
FILLS = {
    "input": BLUE,
    "context": BLUE,
    "state": GREEN,
    "linear": "#fde3c4",
    "vector": "#fff3bf",
    "number": "#f1f3f5",
    "slice": "#f8f9fa",
}
ARITHMETIC, CURVES, ROWS = "#f1f3f5", "#e5dbff", "#c5f0e6"


def svg(graph: Graph, steps: int | None = None) -> str:
    """The picture of one step, or with `steps` of that many, as the text of an SVG file."""
    check_graph(graph)
    return folded(graph) if steps is None else unfolded(graph, steps)


def folded(graph: Graph) -> str:
    """One step from left to right; a dashed line leads from each new state to where it returns."""
    if len(graph.nodes) > MOST_DRAWN:
        raise GraphError(
            f"the graph has {len(graph.nodes)} nodes: expected at most {MOST_DRAWN} to draw"
        )
    names, nodes = state_names(graph), graph.nodes
    labels: dict[object, str] = {}
    for k, node in enumerate(nodes):
        if node.op != "number" or not _absorbed(graph, k):
            labels[k] = _label(graph, node, names)
    edges: list[tuple[object, object]] = []
    for k, node in enumerate(nodes):
        edges += [(a, k) for a in node.args if a in labels]
    for name, k in zip(names, graph.next_states, strict=True):
        labels["state", name] = f"{name}_t"
        edges.append((k, ("state", name)))
    for name, k in graph.outputs.items():
        labels["output", name] = f"{name}_t"
        edges.append((k, ("output", name)))

    canvas = Canvas()
    sizes = {key: canvas.fit(label, small=_small(graph, key)) for key, label in labels.items()}
    first = [k for k, n in enumerate(nodes) if n.op in ("input", "state", "context")]
    last = [key for key in labels if isinstance(key, tuple)]
    layout = arrange(sizes, edges, first, last)
    loops = _loops(graph, names, layout, sizes)
    left = MARGIN + LANE * (len(loops) + 1)
    canvas.shift = (left, MARGIN)
    for route in layout.routes:
        canvas.curve(route)
    for points in loops:
        canvas.corners(points)
    for key, label in labels.items():
        x, y = layout.boxes[key]
        canvas.box(x, y, *sizes[key], label, _fill(graph, key), small=_small(graph, key))
    height = layout.height + 2 * MARGIN + LANE * len(loops)
    return canvas.document(layout.width + 2 * left, height, "one step of a recurrent cell")


def _loops(
    graph: Graph,
    names: list[str],
    layout: Layout,
    sizes: dict[object, tuple[float, float]],
) -> list[list[Point]]:
    """From each new state round the bottom to the state before the step; upper ones outside."""
    pairs = []
    for k, node in enumerate(graph.nodes):
        if node.op == "state":
            new = ("state", names[node["index"]])
            pairs.append((layout.boxes[new], sizes[new], layout.boxes[k], sizes[k]))
    pairs.sort(key=lambda pair: -pair[0][1])
    found = []
    for lane, ((x1, y1), (w1, _), (x2, y2), (w2, _)) in enumerate(pairs, 1):
        right, low = layout.width + LANE * lane, layout.height + LANE * lane
        left = -LANE * lane
        corners = [(right, y1), (right, low), (left, low), (left, y2)]
        found.append([(x1 + w1 / 2, y1), *corners, (x2 - w2 / 2, y2)])
    return found


def _absorbed(graph: Graph, k: int) -> bool:
    """Whether a number is written into the boxes of those who use it."""
    users = [n for n in graph.nodes if k in n.args]
    plain = all(_infix(n) and _other(graph, n) is not None for n in users)
    return plain and k not in graph.results


def _infix(node: Node) -> bool:
    return node.op in OPS and OPS[node.op].infix


def _other(graph: Graph, node: Node) -> int | None:
    """The argument of a binary operation whose other one is a number."""
    others = [a for a in node.args if graph.nodes[a].op != "number"]
    return others[0] if len(others) == 1 and len(node.args) == 2 else None


def _label(graph: Graph, node: Node, names: list[str]) -> str:
    if node.op in ("input", "context"):
        return f"{node['name']}_t" if node.op == "input" else node["name"]
    if node.op == "state":
        return f"{names[node['index']]}_t−1"
    if node.op == "vector":
        return node["name"]
    if node.op == "number":
        return f"{node['value']:.4g}"
    if node.op == "linear":
        return f"W_{node['map']}"
    if node.op == "slice":
        return f"{node['start']}:{node['stop']}"
    sign = OPS[node.op].label.format(**node.attributes)
    if not _infix(node):
        return sign
    numbers = [graph.nodes[a].op == "number" and _absorbed(graph, a) for a in node.args]
    if not any(numbers):
        return sign
    number = f"{graph.nodes[node.args[numbers.index(True)]]['value']:.4g}"
    sign = "×" if sign == "⊙" else sign
    if node.op == "sub" and number == "0":
        return "−" if numbers[0] else "− 0"
    return f"{number} {sign}" if numbers[0] else f"{sign} {number}"


def _small(graph: Graph, key: object) -> bool:
    return isinstance(key, int) and graph.nodes[key].op in ("slice", "number")


def _fill(graph: Graph, key: object) -> str:
    if not isinstance(key, int):
        return GREEN if isinstance(key, tuple) and key[0] == "state" else BLUE
    node = graph.nodes[key]
    if node.op in FILLS:
        return FILLS[node.op]
    if node.elementwise:
        return ARITHMETIC if _infix(node) else CURVES
    return ROWS
