"""What a person looks at."""

from metarnn.report.attention import heatmap
from metarnn.report.tree import Tree, tree

__all__ = ["Tree", "heatmap", "tree"]
