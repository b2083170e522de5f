"""What the gates of a trained unit do along sequences."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from metarnn.cells import check
from metarnn.graph import trace_cell
from metarnn.graph.formula import Formulas, Roles
from metarnn.graph.interpret import Schedule, linear
from metarnn.layers import Recurrent


@torch.no_grad()
def activity(
    layer: Recurrent, x: Tensor, given: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """The values of every gate of the lowest layer, by its letter in the formulas: [T, B, n].

    A gate is whatever goes through the logistic function.

    >>> found = activity(metarnn.LSTM(3, 4), torch.randn(7, 2, 3))
    >>> {name: tuple(gate.shape) for name, gate in found.items()}
    {'i': (7, 2, 4), 'f': (7, 2, 4), 'o': (7, 2, 4)}

    Args:
        x: what the layer reads, [T, B, I]
        given: where weights are generated, the numbers they are made of, [T, B, n] or [B, n]
    """
    cell = layer.cells[0]
    if cell.window > 1:
        check.refuse("layer", f"a window of {cell.window} inputs", "a window of 1")
    formulas = Formulas(trace_cell(cell))
    graph = formulas.graph
    gates = _named(formulas)
    weights = layer.weights(0)
    schedule = Schedule(graph, [*gates.values(), *graph.next_states])
    inputs = {"x": x, **(given or {})}
    state = [x.new_zeros(x.shape[1], width) for width in graph.states]
    found: dict[str, list[Tensor]] = {name: [] for name in gates}
    for t in range(len(x)):
        values: dict[int, Tensor] = {}
        for k in schedule.sources:
            node = graph.nodes[k]
            if node.op == "state":
                values[k] = state[node["index"]]
            elif node.op == "vector":
                values[k] = weights[node["name"]]
            else:
                row = inputs[node["name"]]
                values[k] = row[t] if row.dim() == 3 else row
        results = schedule(values, linear(weights), x)
        for name, value in zip(gates, results, strict=False):
            found[name].append(value)
        state = results[len(gates) :]
    return {name: torch.stack(values) for name, values in found.items()}


def _named(formulas: Formulas) -> dict[str, int]:
    """Every gate: by the name it has in the formulas, else by the letter for what it does."""
    nodes, roles = formulas.graph.nodes, Roles(formulas.graph)
    every = [k for k, node in enumerate(nodes) if node.op == "sigmoid" and _reads(formulas, k)]
    known = {k: formulas.named[k].removesuffix("_t") for k in every if k in formulas.named}
    found = {name: k for k, name in known.items()}
    for k in every:
        if k not in known:
            letter, number = roles.letter(k), 2
            name = letter
            while name in found:
                name, number = f"{letter}{number}", number + 1
            found[name] = k
    return dict(sorted(found.items(), key=lambda each: each[1]))


def _reads(formulas: Formulas, k: int) -> bool:
    """Whether a value depends on input or state: generated weights may be squashed too, before
    they are used, and that is no gate."""
    needed = (formulas.graph.nodes[j] for j in formulas.graph.needed([k]))
    return any(n.op == "state" or (n.op == "input" and n["name"] == "x") for n in needed)
