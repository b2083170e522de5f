"""A graph run in plain torch: all that autograd, vmap and the rest can do works on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
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


def evaluate(
    graph: Graph, known: Mapping[int, Tensor], results: Iterable[int], apply: Linear, like: Tensor
) -> list[Tensor]:
    """The values of `results` from those that are known; sources must be, numbers need not."""
    results = list(results)
    values = dict(known)
    for k in sorted(_unknown(graph, results, values)):
        node = graph.nodes[k]
        if node.op == "number":
            values[k] = torch.full((node.width,), node["value"], dtype=like.dtype, device=like.device)
        elif node.op == "linear":
            values[k] = apply(node, values[node.args[0]])
        else:
            values[k] = OPS[node.op].compute(*(values[a] for a in node.args), **node.attributes)
    return [values[k] for k in results]


def _unknown(graph: Graph, results: Iterable[int], known: Mapping[int, Tensor]) -> set[int]:
    found, todo = set(), list(results)
    while todo:
        k = todo.pop()
        if k not in found and k not in known:
            found.add(k)
            todo += graph.nodes[k].args
    return found
