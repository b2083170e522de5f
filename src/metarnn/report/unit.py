"""Sections about the recurrent unit: what it computes, and how it was found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from metarnn.graph import Graph, GraphError, svg, text
from metarnn.report.markup import Markup, figure, join, tag
from metarnn.report.materials import Materials, curve, names
from metarnn.report.page import Section
from metarnn.report.plot import Line, Plot


def cells(graphs: Mapping[str, Graph], lstm: Graph) -> Section | None:
    """Units as drawings, and their formulas beside those of an LSTM."""
    if not graphs:
        return None
    drawings = [_drawing(name, graph, k) for k, (name, graph) in enumerate(graphs.items())]
    (first, unit), *others = graphs.items()
    beside = [(first, unit), ("LSTM, for comparison", lstm), *others]
    if any(text(graph) == text(lstm) for graph in graphs.values()):
        beside.pop(1)
    columns = [tag("div", tag("h3", name), formulas(graph)) for name, graph in beside]
    about = (
        "What one time step computes. Blue is what comes in, orange a matrix, green the state; "
        "dashed lines lead to the next step. σ is the logistic function, ⊙ multiplies elementwise."
    )
    return Section("cell", "The unit", join(drawings, tag("div", columns, cls="pair")), about)


def formulas(graph: Graph) -> Markup:
    """The lines of a step, with what is below a letter set below it."""
    lines = []
    for line in text(graph).splitlines():
        parts: list[str] = []
        for piece in re.split(r"(_\{[^}]*\}|_\w+)", line):
            below = piece.startswith("_")
            parts.append(tag("sub", piece.lstrip("_").strip("{}")) if below else piece)
        lines.append(tag("li", parts))
    return tag("ol", lines, cls="formula")


def _drawing(name: str, graph: Graph, number: int) -> Markup:
    try:
        drawn = svg(graph)
    except GraphError as error:
        return tag("p", f"{name} is not drawn: {error}", cls="note")
    # Marks at the ends of lines are found by name in the whole page, where names are unique.
    drawn = re.sub(r'(id="|url\(#)(head\w+)', rf"\g<1>cell{number}-\2", drawn)
    drawn = drawn.replace("one step of a recurrent cell", join(f"One step of {name}"))
    inside = tag("div", Markup(drawn), cls="drawing", tabindex="0", role="region",
                 aria_label=f"drawing of {name}")  # fmt: skip
    return figure(inside, name)


def searching(found: Materials) -> Section | None:
    """How a search moved: its loss, the entropy of what it has to decide, the shares of α."""
    moved = found.moved
    plots = []
    losses = {
        "loss of the mixture": Line(curve(moved, "structure_loss"), colour=0),
        "loss of a candidate": Line(curve(moved, "score"), colour=5),
        "best so far": Line(curve(moved, "best_score"), colour=1),
    }
    plots.append(Plot(losses, "loss during the search", "update", "loss").figure(
        "On the part of the data that decides about the structure."))  # fmt: skip
    entropy = {"entropy": Line(curve(moved, "entropy"), colour=0)}
    plots.append(Plot(entropy, "entropy of the decisions", "update", "entropy").figure(
        "How undecided the structure is: 1 where every option weighs the same, 0 where all is "
        "decided."))  # fmt: skip
    masses = {
        name.removeprefix("mass_"): Line(curve(moved, name)) for name in names(moved, "mass_")
    }
    plots.append(Plot(masses, "shares of the options", "update", "mean softmax(α)").figure(
        "The mean share of each operation and activation among the options where it is one."
    ))  # fmt: skip
    gap = {"gap": Line(curve(moved, "gap"), colour=3)}
    plots.append(Plot(gap, "gap of discretisation", "update", "loss").figure(
        "What is lost when the likeliest unit takes the place of the mixture, with its weights."
    ))  # fmt: skip
    body = join([plot for plot in plots if plot], _winner(found.search))
    return Section("search", "How the search moved", body) if body else None


def _winner(about: Mapping[str, Any]) -> Markup | None:
    if not about:
        return None
    said = [("strategy", str(about.get("strategy", "")))]
    for name, words in (("steps", "updates"), ("seconds", "seconds")):
        if isinstance(about.get(name), int | float):
            said.append((words, f"{about[name]:,.0f}"))
    scores = [s for s in about.get("finalists", ()) if isinstance(s, int | float)]
    if scores:
        said.append(("finalists, trained from scratch", ", ".join(f"{s:.4f}" for s in scores)))
    return tag("dl", [join(tag("dt", name), tag("dd", value)) for name, value in said], cls="small")
