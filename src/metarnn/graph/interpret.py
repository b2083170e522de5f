"""A graph run in plain torch: all that autograd, vmap and the rest can do works on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from torch import Tensor
from torch.nn import functional as F

from metarnn.graph.graph import Graph, Node
from metarnn.graph.ops import OPS

Linear = Callable[[Node, Tensor], Tensor]


def linear(weights: Mapping[str, Tensor]) -> Linear:
    """How a linear node is applied, given the weights by name."""

    def apply(node: Node, x: Tensor) -> Tensor:
        weight = weights[f"weight_{node['map']}"]
        if (node["start"], node["stop"]) != (0, weight.shape[1]):
            weight = weight[:, node["start"] : node["stop"]]
        if node.attributes.get("transposed"):
            return x @ weight
        return F.linear(x, weight, weights[f"bias_{node['map']}"] if node["bias"] else None)

    return apply


class Schedule:
    """The nodes to compute for some results, in order, worked out once.

    `known` are nodes whose values will be given; `sources` are the others that must be.
    """

    def __init__(self, graph: Graph, results: Iterable[int], known: Iterable[int] = ()) -> None:
        self.graph, self.results, known = graph, tuple(results), set(known)
        todo, found = list(self.results), set()
        while todo:
            k = todo.pop()
            if k not in found and k not in known:
                found.add(k)
                todo += graph.nodes[k].args
        given = {k for k in found if graph.nodes[k].source and graph.nodes[k].op != "number"}
        self.sources = tuple(sorted(given))
        self.order = tuple(sorted(found - given))

    def __call__(self, values: Mapping[int, Tensor], apply: Linear, like: Tensor) -> list[Tensor]:
        """The results, from the values of sources and known nodes."""
        values = dict(values)
        for k in self.order:
            node = self.graph.nodes[k]
            if node.op == "number":
                values[k] = like.new_full((node.width,), node["value"])
            elif node.op == "linear":
                values[k] = apply(node, values[node.args[0]])
            else:
                values[k] = OPS[node.op].compute(*(values[a] for a in node.args), **node.attributes)
        return [values[k] for k in self.results]


def evaluate(
    graph: Graph, known: Mapping[int, Tensor], results: Iterable[int], apply: Linear, like: Tensor
) -> list[Tensor]:
    """The values of `results` from those that are known; all sources but numbers must be."""
    return Schedule(graph, results, known)(known, apply, like)
