"""What a hypernetwork has learned about tasks: maps, distances, what moves which weights."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from metarnn.cells import check
from metarnn.graph.vector import LINE, SMALL, Canvas
from metarnn.hyper import Hypernetized


@dataclass(frozen=True)
class TaskMap:
    """N tasks as a hypernetwork sees them.

    embeddings  their embeddings on the two directions of largest spread, [N, 2]
    weights     the same for the weights that are generated, [N, 2]
    explained   share of the spread that these two directions have, for both
    distances   between generated weights, [N, N], root mean square
    influence   {field of the descriptor: {weight: how much it moves}}: the root mean square of the
                weight's change for a change of the field by one, over all tasks
    """

    names: tuple[str, ...]
    embeddings: Tensor
    weights: Tensor
    explained: tuple[float, float]
    distances: Tensor
    influence: Mapping[str, Mapping[str, float]]

    def json(self) -> str:
        """All of it as data."""
        return json.dumps(
            {
                "names": self.names,
                "embeddings": self.embeddings.tolist(),
                "weights": self.weights.tolist(),
                "explained": self.explained,
                "distances": self.distances.tolist(),
                "influence": self.influence,
            }
        )

    def svg(self, values: Sequence[float] | None = None, title: str = "tasks") -> str:
        """Both maps side by side, and the influences below; `values` colour the tasks."""
        canvas, width, side = Canvas(), 720.0, 300.0
        canvas.text(width / 2, 20, title)
        shades = _shades(values, len(self.names))
        both = ((self.embeddings, "embeddings"), (self.weights, "generated weights"))
        for k, (points, name) in enumerate(both):
            left = 40 + k * (side + 40)
            share = f"{name}, {self.explained[k]:.0%} of the spread"
            canvas.text(left + side / 2, 44, share, SMALL)
            _scatter(canvas, points, shades, self.names, left, 60, side)
        top = _bars(canvas, self.influence, 60 + side + 40, width)
        return canvas.document(width, top + 10, title)


def task_map(hyper: Hypernetized, about: Any, names: Sequence[str] | None = None) -> TaskMap:
    """The map of the tasks that are described.

    >>> from metarnn.hyper import hypernetize
    >>> many = hypernetize(torch.nn.Linear(2, 1), descriptor=3, start="hyperfan")
    >>> found = task_map(many, torch.randn(10, 3))
    >>> found.embeddings.shape, sorted(found.influence["all"])
    (torch.Size([10, 2]), ['bias', 'weight'])
    """
    with torch.no_grad():
        tau = hyper.descriptor(about)
        count = len(tau)
        if count < 2:
            check.refuse("about", f"{count} task", "at least two: a map of one says nothing")
        if names is not None and len(names) != count:
            check.refuse("names", f"{len(names)} of them", f"{count}, one a task")
        embeddings = hyper.embed(tau)
        rows = torch.cat([w.flatten(1) for w in hyper.written(embeddings).values()], 1)
        apart = torch.cdist(rows, rows) / math.sqrt(rows.shape[1])
        points, shares = zip(*(_principal(x) for x in (embeddings, rows)), strict=True)
        shown = tuple(str(name) for name in (names or range(count)))
        influence = _influence(hyper, tau)
    return TaskMap(shown, points[0], points[1], (shares[0], shares[1]), apart, influence)


def _principal(x: Tensor) -> tuple[Tensor, float]:
    """x on its two principal directions, and the share of the variance that they have."""
    x = (x - x.mean(0)).double()
    u, s, _ = torch.linalg.svd(x, full_matrices=False)
    found = torch.zeros(len(x), 2, dtype=x.dtype)
    size = min(2, len(s))
    found[:, :size] = u[:, :size] * s[:size]
    total = float(s.square().sum())
    return found.float(), float(s[:2].square().sum()) / total if total else 0.0


def _influence(hyper: Hypernetized, tau: Tensor) -> dict[str, dict[str, float]]:
    """From the Jacobian of weights by descriptor, a part of the tasks at a time."""

    def weights(row: Tensor) -> dict[str, Tensor]:
        found = hyper.written(hyper.embed(row.unsqueeze(0)))
        return {name: weight.flatten() for name, weight in found.items()}

    slopes = vmap(jacrev(weights), chunk_size=8)(tau)  # {name: [N, numbers, width]}
    found: dict[str, dict[str, float]] = {}
    for field, (first, last) in hyper.descriptor.fields.items():
        found[field] = {
            name: float(slope[..., first:last].square().sum(-1).mean().sqrt())
            for name, slope in slopes.items()
        }
    return found


def _shades(values: Sequence[float] | None, count: int) -> list[str]:
    """From blue, the smallest value, to orange, the largest."""
    if values is None:
        return ["#1971c2"] * count
    if len(values) != count:
        check.refuse("values", f"{len(values)} of them", f"{count}, one a task")
    low, high = min(values), max(values)
    blue, orange = (25, 113, 194), (232, 89, 12)
    found = []
    for value in values:
        t = (value - low) / (high - low) if high > low else 0.0
        mixed = (round(a + t * (b - a)) for a, b in zip(blue, orange, strict=True))
        found.append("#" + "".join(f"{part:02x}" for part in mixed))
    return found


def _scatter(
    canvas: Canvas,
    points: Tensor,
    shades: Sequence[str],
    names: Sequence[str],
    left: float,
    top: float,
    side: float,
) -> None:
    corners = [(left, top), (left + side, top), (left + side, top + side), (left, top + side)]
    for a, b in zip(corners, [*corners[1:], corners[0]], strict=True):
        canvas.rule(a, b, LINE)
    reach = float(points.abs().max()) * 1.1 or 1.0
    for (x, y), shade, name in zip(points.tolist(), shades, names, strict=True):
        at = left + side * (x / reach + 1) / 2, top + side * (1 - y / reach) / 2
        canvas.rule((at[0] - 3, at[1]), (at[0] + 3, at[1]), shade)
        canvas.rule((at[0], at[1] - 3), (at[0], at[1] + 3), shade)
        if len(names) <= 30:
            canvas.text(at[0], at[1] - 10, name, SMALL)


def _bars(
    canvas: Canvas, influence: Mapping[str, Mapping[str, float]], top: float, width: float
) -> float:
    """How much each field moves each weight; where it ends."""
    largest = max((v for row in influence.values() for v in row.values()), default=0.0) or 1.0
    for field, row in list(influence.items())[:12]:
        canvas.text(width / 2, top, f"what {field} moves", SMALL)
        top += 16
        for name, value in row.items():
            canvas.text(110, top, name, SMALL)
            canvas.rule((220, top), (220 + 400 * value / largest, top), "#e8590c")
            canvas.text(660, top, f"{value:.3g}", SMALL)
            top += 16
        top += 8
    return top
