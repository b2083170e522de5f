"""Pictures that are whole, safe to open, and in which nothing lies on anything else."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from metarnn.graph import Builder, GraphError, svg, trace_cell
from metarnn.graph.draw import MOST_DRAWN
from tests.helpers.cases import EVERY
from tests.helpers.random_graphs import random_graph

GRAPHS = {name: trace_cell(cell) for name, cell in EVERY.items()}
GRAPHS |= {f"random-{seed}": random_graph(seed, extra_outputs=True) for seed in range(30)}
SVG = "{http://www.w3.org/2000/svg}"


def opened(picture):
    root = ElementTree.fromstring(picture)
    assert root.tag == f"{SVG}svg"
    assert float(root.attrib["width"]) > 0
    return root


def boxes(root):
    """(left, top, right, bottom) of each box."""
    found = []
    for shape in root.iter(f"{SVG}rect"):
        if "x" in shape.attrib:
            x, y, w, h = (float(shape.attrib[key]) for key in ("x", "y", "width", "height"))
            found.append((x, y, x + w, y + h))
    return found


@pytest.mark.parametrize("steps", [None, 1, 4])
@pytest.mark.parametrize("name", GRAPHS)
def test_no_box_lies_on_another_or_outside_the_picture(name, steps):
    root = opened(svg(GRAPHS[name], steps))
    width, height = float(root.attrib["width"]) + 1, float(root.attrib["height"]) + 1
    found = boxes(root)
    for k, (left, top, right, bottom) in enumerate(found):
        assert left > 0
        assert top > 0
        assert right < width
        assert bottom < height
        for other in found[:k]:
            apart = right < other[0] or other[2] < left or bottom < other[1] or other[3] < top
            assert apart, (found[k], other)


@pytest.mark.parametrize("name", GRAPHS)
def test_no_label_is_wider_than_its_box(name):
    root = opened(svg(GRAPHS[name]))
    found = boxes(root)
    for label in root.iter(f"{SVG}text"):
        x, size = float(label.attrib["x"]), float(label.attrib["font-size"])
        wide = 0.62 * size * len(label.text or "")  # of DejaVu Sans, a wide font
        left = x - {"middle": wide / 2, "end": wide, "start": 0}[label.attrib["text-anchor"]]
        y = float(label.attrib["y"])
        (box,) = [b for b in found if b[0] <= x <= b[2] and b[1] <= y <= b[3]]
        assert box[0] <= left
        assert left + wide <= box[2] + 1


def test_each_state_returns_once():
    picture = svg(trace_cell(EVERY["lstm"]))
    assert picture.count("stroke-dasharray") == 2
    assert svg(trace_cell(EVERY["gru"])).count("stroke-dasharray") == 1


def test_over_time_each_step_has_its_input_its_state_and_the_shared_weights():
    labels = [t.text for t in opened(svg(GRAPHS["lstm"], 3)).iter(f"{SVG}text")]
    assert labels.count("x") == labels.count("y") == 3
    assert labels.count("h") == labels.count("c") == 4  # h_0 to h_3
    assert sum("θ = {W ih" in (text or "") for text in labels) == 1


def test_names_cannot_break_out_of_the_text():
    builder = Builder({})
    h = builder.add("state", width=2, index=0)
    new = builder.add("mul", h, builder.add("vector", width=2, name="v"))
    graph = builder.graph([new], {"y": new})
    nodes = [
        replace(n, attributes={"name": "<script>&"}) if n.op == "vector" else n for n in graph.nodes
    ]
    with pytest.raises(GraphError, match="identifier"):
        svg(replace(graph, nodes=tuple(nodes)))
    from metarnn.graph.vector import Canvas

    canvas = Canvas()
    canvas.box(0, 0, 10, 10, "<script>_&", "#ffffff")
    assert "<script>" not in canvas.document(10, 10, "</title>")
    assert "&lt;/title&gt;" in canvas.document(10, 10, "</title>")


def test_a_picture_needs_nothing_from_elsewhere():
    picture = svg(GRAPHS["onlstm"])
    assert not re.search(r"href|@import|<script|<image|<style", picture)
    assert picture.count("http") == 1  # the namespace


def test_what_is_too_large_to_look_at_is_refused():
    builder = Builder({})
    k = builder.add("state", width=1, index=0)
    for _ in range(MOST_DRAWN):
        k = builder.add("tanh", k)
    graph = builder.graph([k], {"y": k})
    with pytest.raises(GraphError, match="at most 400 to draw"):
        svg(graph)
    assert svg(graph, 3)
    for steps in (0, -1, 1000, True):
        with pytest.raises(ValueError, match="steps"):
            svg(graph, steps)
