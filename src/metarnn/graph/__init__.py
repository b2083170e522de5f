"""A cell's step as data: traced from torch, run, cut into stages, differentiated."""

from metarnn.graph.derive import Parts, Stage, cut, stages
from metarnn.graph.graph import Builder, Graph, Node
from metarnn.graph.interpret import Schedule, evaluate, linear
from metarnn.graph.reverse import Reverse, reverse
from metarnn.graph.trace import Untraceable, trace, trace_cell

__all__ = [
    "Builder",
    "Graph",
    "Node",
    "Parts",
    "Reverse",
    "Schedule",
    "Stage",
    "Untraceable",
    "cut",
    "evaluate",
    "linear",
    "reverse",
    "stages",
    "trace",
    "trace_cell",
]
