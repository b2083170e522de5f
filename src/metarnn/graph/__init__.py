"""A cell's step as data: traced, saved, printed, drawn, run, cut into stages, differentiated."""

from metarnn.graph.affine import NotAffine, affine
from metarnn.graph.cell import GraphCell
from metarnn.graph.check import GraphError, check_graph
from metarnn.graph.derive import Parts, Stage, cut, depends, stages
from metarnn.graph.draw import svg
from metarnn.graph.formula import latex, text
from metarnn.graph.graph import Builder, Graph, Node
from metarnn.graph.interpret import Linear, Schedule, evaluate, linear
from metarnn.graph.rescale import rescaled
from metarnn.graph.reverse import Reverse, Saved, preactivations, reverse
from metarnn.graph.serialize import from_json, read, save, to_json
from metarnn.graph.trace import Untraceable, trace, trace_cell

__all__ = [
    "Builder",
    "Graph",
    "GraphCell",
    "GraphError",
    "Linear",
    "Node",
    "NotAffine",
    "Parts",
    "Reverse",
    "Saved",
    "Schedule",
    "Stage",
    "Untraceable",
    "affine",
    "check_graph",
    "cut",
    "depends",
    "evaluate",
    "from_json",
    "latex",
    "linear",
    "preactivations",
    "read",
    "rescaled",
    "reverse",
    "save",
    "stages",
    "svg",
    "text",
    "to_json",
    "trace",
    "trace_cell",
]
