"""What a person looks at."""

from metarnn.report.tree import Tree, tree

__all__ = ["Tree", "tree"]
