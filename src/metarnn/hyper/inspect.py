"""Looking inside: how the weights that a layer generates move along a sequence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metarnn.cells import Theta, check
from metarnn.graph.vector import COLORS, LINE, SMALL, Canvas
from metarnn.hyper.around import Around
from metarnn.hyper.meta import MetaRecurrent
from metarnn.hyper.watch import watch
from metarnn.layers import Recurrent


@dataclass(frozen=True)
class Motion:
    """What one layer generated along one sequence: `numbers` by name, [T, n] each."""

    numbers: dict[str, Tensor]

    @property
    def whole(self) -> Tensor:
        """All numbers side by side, [T, N]."""
        return torch.cat(list(self.numbers.values()), -1)

    def norms(self) -> dict[str, Tensor]:
        """How far rows of numbers are from the plain unit at each step, [T]: root mean squares."""
        return {name: d.square().mean(-1).sqrt() for name, d in self.numbers.items()}

    def changes(self) -> Tensor:
        """How far the weights moved at each step, [T]: ‖d_t - d_{t-1}‖, 0 at the first."""
        moved = (self.whole[1:] - self.whole[:-1]).norm(dim=-1)
        return torch.cat([moved.new_zeros(1), moved])

    def path(self, dimensions: int = 2) -> tuple[Tensor, Tensor]:
        """The way of d_t along its principal components, [T, k], with the share of each."""
        centred = self.whole - self.whole.mean(0)
        u, s, _ = torch.linalg.svd(centred, full_matrices=False)
        k = min(dimensions, len(s))
        share = s.square() / s.square().sum().clamp(min=torch.finfo(s.dtype).tiny)
        return u[:, :k] * s[:k], share[:k]

    def movers(self, tokens: Sequence[str]) -> list[tuple[str, float, int]]:
        """Each kind of token, how far the weights move on average as it is read, how often it was.

        Sorted: what moves the weights most comes first.
        """
        if len(tokens) != len(self.whole):
            check.refuse("tokens", f"{len(tokens)} of them", f"{len(self.whole)}, one a step")
        seen: dict[str, list[float]] = defaultdict(list)
        for token, moved in zip(tokens[1:], self.changes()[1:].tolist(), strict=True):
            seen[token].append(moved)
        found = [(token, sum(m) / len(m), len(m)) for token, m in seen.items()]
        return sorted(found, key=lambda row: -row[1])

    def __str__(self) -> str:
        share = ", ".join(f"{float(s):.0%}" for s in self.path()[1])
        lines = [f"{len(self.whole)} steps, {self.whole.shape[1]} numbers a step"]
        lines += [f"two directions hold {share} of how they vary"]
        for name, norm in self.norms().items():
            lines.append(f"  {name:<20} mean {norm.mean():.3f}  largest {norm.max():.3f}")
        return "\n".join(lines)

    def svg(self, tokens: Sequence[str] = (), title: str = "generated weights") -> str:
        """Norms over time, and the path along two principal components, as a picture."""
        canvas = Canvas()
        canvas.text(360, 20, title)
        self._draw_norms(canvas, list(tokens))
        canvas.shift = (0.0, 260.0)
        self._draw_path(canvas, list(tokens))
        return canvas.document(720, 700, title)

    def _draw_norms(self, canvas: Canvas, tokens: list[str]) -> None:
        left, right, top, bottom = 60.0, 700.0, 50.0, 220.0
        norms = self.norms()
        most = max(max(float(n.max()) for n in norms.values()), 1e-12)
        steps = len(self.whole)

        def x(t: int) -> float:
            return left + (right - left) * t / max(steps - 1, 1)

        canvas.rule((left, bottom), (right, bottom), LINE)
        canvas.rule((left, top), (left, bottom), LINE)
        canvas.text(left - 28, top, f"{most:.2g}", SMALL)
        canvas.text(left - 28, bottom, "0", SMALL)
        for k, (name, norm) in enumerate(norms.items()):
            color = COLORS[k % len(COLORS)]
            heights = [bottom - (bottom - top) * v / most for v in norm.tolist()]
            canvas.path([(x(t), y) for t, y in enumerate(heights)], color)
            canvas.rule((left + 10 + 150 * (k % 4), 38), (left + 24 + 150 * (k % 4), 38), color)
            canvas.text(left + 80 + 150 * (k % 4), 38, name.replace("_", " "), SMALL)
        for t, token in enumerate(tokens if len(tokens) <= 80 else []):
            canvas.text(x(t), bottom + 14, _shown(token), SMALL)

    def _draw_path(self, canvas: Canvas, tokens: list[str]) -> None:
        left, right, top, bottom = 60.0, 700.0, 30.0, 420.0
        way, share = self.path()
        if way.shape[1] < 2:
            way = torch.cat([way, torch.zeros_like(way[:, :1])], -1)[:, :2]
        low, high = way.min(0).values, way.max(0).values
        unit = (way - low) / (high - low).clamp(min=1e-12)
        points = [
            (left + (right - left) * a, bottom - (bottom - top) * b) for a, b in unit.tolist()
        ]
        canvas.path(points, "#adb5bd")
        said = ", ".join(f"{float(s):.0%}" for s in share)
        canvas.text(360, 14, f"path along principal components ({said} of the variance)", SMALL)
        for t, point in enumerate(points):
            canvas.text(*point, _shown(tokens[t]) if tokens else str(t), SMALL)


def _shown(token: str) -> str:
    """A token as a mark in a picture; no underscore, which would set what follows below."""
    return {" ": "␣", "\n": "⏎", "\t": "⇥", "_": "‿"}.get(token, token.replace("_", "‿"))


@torch.no_grad()
def motion(layer: Recurrent, x: Tensor) -> list[Motion]:
    """How the generated weights of each layer of a stack move along one sequence x [T, I].

    >>> layer = metarnn.MetaRecurrent(cells.GRU(3, 4), num_layers=2)
    >>> [len(m.whole) for m in motion(layer, torch.randn(9, 3))]
    [9, 9]

    For layers that generate (`MetaRecurrent`, or `Recurrent` of a Mogrifier or a HyperLSTM).
    """
    if x.dim() != 2:
        check.refuse("x.shape", tuple(x.shape), "one sequence, [time, input]")
    if layer.bidirectional:
        check.refuse("layer", "bidirectional", "one direction")
    training = layer.training
    layer.eval()
    try:
        if isinstance(layer, MetaRecurrent) and len(layer.sources):
            with watch() as records:
                layer(x.unsqueeze(0) if layer.batch_first else x.unsqueeze(1))
            return [
                Motion({n: _along(d, len(x)) for n, d in record.numbers.items()})
                for record in records
            ]
        return _inside(layer, x)
    finally:
        layer.train(training)


def _along(d: Tensor, steps: int) -> Tensor:
    """The numbers of the only sequence, [T, n]."""
    return d[:, 0] if d.dim() == 3 else d.expand(steps, -1)


def _inside(layer: Recurrent, x: Tensor) -> list[Motion]:
    """The same where numbers are generated inside the step: one step at a time."""
    found = []
    for k, cell in enumerate(layer.cells):
        if not isinstance(cell, Around) or cell.window > 1:
            kind = type(cell).__name__
            check.refuse("layer", f"a layer of {kind}", "one that generates weights, window 1")
        theta = Theta(cell, layer.weights(k))
        state = tuple(x.new_zeros(1, n) for n in cell.states)
        rows, outputs = [], []
        for x_t in x.unsqueeze(1):
            rows.append(cell.generated(theta, x_t, state))
            state = cell.step(theta, x_t, state)
            outputs.append(cell.output(theta, x_t, state))
        found.append(Motion({name: torch.cat([row[name] for row in rows]) for name in rows[0]}))
        y = torch.cat(outputs)
        x = y + x if layer.residual and k else y
    return found
