"""A cell over T steps: the same step T times, its states handed on, its weights shared by all."""

from __future__ import annotations

from metarnn.cells import check
from metarnn.graph.formula import state_names
from metarnn.graph.graph import Graph
from metarnn.graph.vector import BLUE, GREEN, LOOP, Canvas

MOST_STEPS = 100
PITCH, BOX, SIDE = 120.0, 56.0, 70.0


def unfolded(graph: Graph, steps: int) -> str:
    """x_1 … x_T below the steps, outputs above, h_0 … h_T between them, θ under all of it."""
    if check.size("steps", steps) > MOST_STEPS:
        check.refuse("steps", steps, f"at most {MOST_STEPS}")
    names, outputs = state_names(graph), list(graph.outputs)
    inputs = list(graph.named("input"))
    tall = max(50.0, 26.0 * len(names) + 14.0)
    top, middle = 40.0, 40.0 + 52.0 + tall / 2
    low = middle + tall / 2 + 56.0
    theta = low + 58.0

    canvas = Canvas()
    at = [SIDE + PITCH * (t + 0.5) for t in range(steps)]
    lanes = [middle + 26.0 * (k - (len(names) - 1) / 2) for k in range(len(names))]
    for t in range(steps + 1):
        x1 = at[t - 1] + BOX / 2 if t else SIDE / 2 + 14
        x2 = at[t] - BOX / 2 if t < steps else at[-1] + BOX / 2 + PITCH - BOX
        for name, y in zip(names, lanes, strict=True):
            canvas.line((x1, y), (x2, y), LOOP)
            canvas.text((x1 + x2) / 2 - 3, y - 9, f"{name}_{t}", 12)
    for t, x in enumerate(at):
        for past in range(min(graph.window, t + 1) if inputs else 0):
            canvas.line((at[t - past] - 10, low - 15), (x - 10 - 6 * past, middle + tall / 2))
        canvas.line((x + 18, theta - 17), (x + 18, middle + tall / 2))
        if outputs:
            canvas.line((x, middle - tall / 2), (x, top + 15))
            label = f"{outputs[0]}_{t + 1}" if len(outputs) == 1 else f"out_{t + 1}"
            canvas.box(x, top, 40, 30, label, BLUE)
        canvas.box(x, middle, BOX, tall, "f_θ", GREEN)
        if inputs:
            label = f"{inputs[0]}_{t + 1}" if len(inputs) == 1 else f"in_{t + 1}"
            canvas.box(x - 10, low, 40, 30, label, BLUE)
    width = at[-1] + BOX / 2 + PITCH - BOX + 20
    bar = at[-1] - at[0] + BOX + 24
    canvas.box((at[0] + at[-1]) / 2, theta, bar, 34, _theta(graph, bar), "#fde3c4")
    return canvas.document(width, theta + 40, f"a recurrent cell over {steps} steps")


def _theta(graph: Graph, room: float) -> str:
    """θ and what it holds, as far as there is room for names."""
    weights = []
    for name, m in graph.maps.items():
        weights += [f"W {name}", *([f"b {name}"] if m.bias else [])]
    weights += [name.replace("_", " ") for name in graph.named("vector")]
    shown = len(weights)
    while shown and 9.0 * len(_listed(weights, shown)) > room - 20:
        shown -= 1
    return _listed(weights, shown) if shown else "θ"


def _listed(weights: list[str], shown: int) -> str:
    return "θ = {" + ", ".join([*weights[:shown], *["…"] * (shown < len(weights))]) + "}"
