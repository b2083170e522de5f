"""What a person looks at."""

from metarnn.report.attention import heatmap
from metarnn.report.page import Page, Section
from metarnn.report.plot import Line, Plot
from metarnn.report.tasks import TaskMap, task_map
from metarnn.report.tree import Tree, tree

__all__ = [
    "Line",
    "Page",
    "Plot",
    "Section",
    "TaskMap",
    "Tree",
    "heatmap",
    "task_map",
    "tree",
]
