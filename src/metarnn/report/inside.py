"""Sections about what happens inside a trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import torch
from torch import Tensor

from metarnn.gradients.reach import Reach
from metarnn.hyper.inspect import Motion
from metarnn.report import reach as reaches
from metarnn.report.markup import Markup, join, table, tag
from metarnn.report.page import Section
from metarnn.report.plot import Line, Plot

MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
MOVERS = 8  # tokens that move the weights most, in the table
BANDS = 3  # more of them over one another cannot be told apart
WITHIN = "; the band holds the middle 80 % of them."
NEAR = 0.05  # of its limits a gate counts as closed or open


def visible(token: str) -> str:
    """A token that can be seen, however little there is to it.

    >>> visible(" "), visible("a b")
    ('␣', 'a b')
    """
    return MARKS.get(token, token) or "∅"


def moving(motion: Motion, tokens: Sequence[str]) -> Markup:
    """How generated weights move as a sequence is read, token by token."""
    steps = len(motion.whole)
    labels = [visible(token) for token in tokens] or [str(t) for t in range(steps)]
    changes = motion.changes()
    most = max(float(changes.max()), 1e-12)
    gap = " " if median(map(len, labels)) > 1 else ""  # between words, not between characters
    spans = [
        join(tag("span", label, style=f"--v:{change / most:.2f}", title=f"{change:.3g}"), gap)
        for label, change in zip(labels, changes.tolist(), strict=True)
    ]
    norms = {
        name.replace("_", " "): Line(list(enumerate(norm.tolist())))
        for name, norm in motion.norms().items()
    }
    how_far = Plot(norms, "How far from the plain unit", "step", "root mean square", labels=labels)
    moved = {"change from the step before": Line(list(enumerate(changes.tolist())), colour=1)}
    how_much = Plot(moved, "How much they change at each step", "step", "change", labels=labels)
    share = ", ".join(f"{float(s):.0%}" for s in motion.path()[1])
    about = (
        f"{motion.whole.shape[1]:,} numbers are generated at each step; two directions hold "
        f"{share} of how they vary."
    )
    read = [
        tag("p", spans, cls="tokens"),
        tag("p", "The darker, the more the weights move as a token is read.", cls="note"),
    ]
    return join(
        read if tokens else None,
        how_far.figure(about),
        how_much.figure(),
        _movers(motion, labels) if tokens else None,
    )


def _movers(motion: Motion, labels: Sequence[str]) -> Markup:
    rows = [
        [token, f"{moved:.4g}", str(count)]
        for token, moved, count in motion.movers(labels)[:MOVERS]
    ]
    return tag(
        "details",
        tag("summary", "which tokens move the weights most"),
        table(["token", "mean change", "times"], rows, "tokens that move the weights"),
    )


def gating(gates: Mapping[str, Tensor], tokens: Sequence[str]) -> Markup:
    """How open each gate is along the first sequence, and over all of them."""
    lines, rows = {}, []
    for name, gate in gates.items():
        first = gate[:, 0].double()
        low, high = first.quantile(torch.tensor([0.1, 0.9], dtype=torch.float64), 1).tolist()
        band = (low, high) if len(gates) <= BANDS else ()
        lines[name] = Line(list(enumerate(first.mean(1).tolist())), *band)
        shut, wide = (gate < NEAR).double().mean(), (gate > 1 - NEAR).double().mean()
        rows.append([name, f"{gate.mean():.3f}", f"{float(shut):.1%}", f"{float(wide):.1%}"])
    labels = [visible(token) for token in tokens]
    plot = Plot(lines, "Opening of the gates", "step", "0 closed, 1 open", labels=labels,
                limits=(0.0, 1.0))  # fmt: skip
    head = ["gate", "mean", f"below {NEAR}", f"above {1 - NEAR}"]
    about = "The mean over units" + ("." if len(gates) > BANDS else WITHIN)
    return join(
        plot.figure(about),
        table(head, rows, "gates"),
    )


def reaching(found: Mapping[str, Reach]) -> Section | None:
    """How far back gradients get: the curve, the words and the table of `metarnn diagnose`."""
    if not found:
        return None
    lines = {
        name: Line([(k + 1, n / each.norms[0]) for k, n in enumerate(each.norms) if n > 0])
        for name, each in found.items()
        if each.norms and each.norms[0] > 0
    }
    plot = Plot(lines, "Gradient by how far back", "steps back", "norm, of that one step back",
                logarithmic=True)  # fmt: skip
    words = []
    for name, each in found.items():
        for line in reaches.words(each):
            words.append(tag("li", tag("b", f"{name}: ") if len(found) > 1 else None, line))
    head, *rows = reaches.table(found)
    figures = tag("details", tag("summary", "all figures"), table(head, rows, "gradient reach"))
    body = join(plot.figure(), tag("ul", words, cls="words"), figures)
    return Section("reach", "How far back gradients get", body)


def titled(parts: Mapping[str, Markup], runs: int) -> Markup:
    """What each run has to show, below its name where there are several."""
    if runs == 1:
        return join(*parts.values())
    return join([join(tag("h3", name), part) for name, part in parts.items()])
