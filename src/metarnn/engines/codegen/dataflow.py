"""Who reads which value of a step, and which results are the same value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

from metarnn.graph import Graph

# Outputs of which only the sum over the steps is asked for: gradients of what is the same at all
# of them.
SUMMED = ("dvector.", "dcontext.")


class Slice(NamedTuple):
    """Elements [start, start + width) of the rows of a node that is no slice itself."""

    root: int
    start: int
    width: int


class Use(NamedTuple):
    """A node `user` reads elements [start, start + width) of another one."""

    user: int
    start: int
    width: int


class Dataflow:
    """Who reads what in a graph. A slice is no value of its own: its users read its root."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.nodes = graph, graph.nodes
        self.results = frozenset(graph.results)
        self.users: list[list[int]] = [[] for _ in self.nodes]
        for user, node in enumerate(self.nodes):
            for a in dict.fromkeys(node.args):
                self.users[a].append(user)

    def slice(self, k: int) -> Slice:
        """The elements that a node stands for: of itself, or of what it is a slice (of a slice)
        of."""
        start, width = 0, self.nodes[k].width
        while self.nodes[k].op == "slice":
            start += self.nodes[k]["start"]
            (k,) = self.nodes[k].args
        return Slice(k, start, width)

    def uses(self, k: int) -> Iterator[Use]:
        """Who reads a node, directly or through slices; a slice that is a result is a user."""
        todo = [(user, 0, self.nodes[k].width) for user in self.users[k]]
        while todo:
            user, start, width = todo.pop()
            node = self.nodes[user]
            if node.op == "slice":
                todo += [(u, start + node["start"], node.width) for u in self.users[user]]
                if user in self.results:
                    yield Use(user, start + node["start"], node.width)
            else:
                yield Use(user, start, width)

    def needs_memory(self, k: int, in_registers: Callable[[int, Use], bool]) -> bool:
        """Whether somebody has to read a node from memory, not finding it in its registers."""
        return any(not in_registers(k, use) for use in self.uses(k))

    def parts(self, k: int) -> list[tuple[int, int]]:
        """What a row is joined of, as (where in it that begins, the node); most are one part."""
        node, parts, start = self.nodes[k], [], 0
        for a in node.args if node.op == "join" else (k,):
            parts.append((start, a))
            start += self.nodes[a].width
        return parts


def aliases(graph: Graph, kind: Callable[[str], Hashable]) -> dict[str, str]:
    """Outputs that are the same node as an earlier one of the same kind: {alias: that one}."""
    first: dict[tuple[int, Hashable], str] = {}
    same = {name: first.setdefault((k, kind(name)), name) for name, k in graph.outputs.items()}
    return {name: other for name, other in same.items() if name != other}
