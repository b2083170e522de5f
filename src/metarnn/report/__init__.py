"""What a person looks at."""

from metarnn.report.attention import heatmap
from metarnn.report.tasks import TaskMap, task_map
from metarnn.report.tree import Tree, tree

__all__ = ["TaskMap", "Tree", "heatmap", "task_map", "tree"]
