"""Episodes: examples of many tasks, some to learn from and some to be judged by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from metarnn.cells import check


@dataclass(frozen=True)
class Episode:
    """N tasks with K examples each to learn from, the support, and Q to be judged by, the query.

    x, y              the support, [N, K, …]
    query_x, query_y  the query, [N, Q, …]
    about             what else is known of the tasks, as a descriptor takes it
    """

    x: Tensor
    y: Tensor
    query_x: Tensor
    query_y: Tensor
    about: Any = None

    def __post_init__(self) -> None:
        shapes = [tuple(t.shape) for t in (self.x, self.y, self.query_x, self.query_y)]
        if any(len(shape) < 2 for shape in shapes) or len({shape[0] for shape in shapes}) != 1:
            check.refuse("episode", shapes, "[tasks, examples, …], as many tasks in each")
        if shapes[0][1] != shapes[1][1] or shapes[2][1] != shapes[3][1]:
            check.refuse("episode", shapes, "a y for each x")
        if not shapes[0][0] or not shapes[0][1]:
            check.refuse("episode", shapes, "at least one task, and one example of each")

    @property
    def tasks(self) -> int:
        return len(self.x)

    @property
    def support(self) -> tuple[Tensor, Tensor]:
        return self.x, self.y

    @property
    def query(self) -> tuple[Tensor, Tensor]:
        return self.query_x, self.query_y

    def part(self, tasks: slice) -> Episode:
        """The episode of some of the tasks."""
        return self._mapped(lambda leaf: leaf if leaf is None else leaf[tasks])

    def to(self, device: torch.device | str) -> Episode:
        return self._mapped(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf)

    def _mapped(self, function: Callable[[Any], Any]) -> Episode:
        parts = (self.x, self.y, self.query_x, self.query_y, self.about)
        # Lists hold one thing a task, and are leaves as tensors are.
        return Episode(
            *pytree.tree_map(function, parts, is_leaf=lambda leaf: isinstance(leaf, list))
        )
