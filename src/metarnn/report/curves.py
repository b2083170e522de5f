"""Learning curves as a picture (SVG)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 64, 120, 40, 44
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#8e5ea2", "#e08e0b", "#3cb4b4", "#7a5c3e", "#555555")

Curve = Sequence[tuple[float, float]]


def curves(
    named: Mapping[str, Curve],
    title: str,
    level: tuple[str, float] | None = None,
    along: str = "updates",
) -> str:
    """Curves of (step, loss) over one another, the loss on a logarithmic scale; `level` names a
    height that a curve has to fall below, `along` what steps are.

    >>> curves({"lstm": [(1, 1.0), (2, 0.1)]}, "adding").startswith("<svg")
    True
    """
    shown = {n: [(s, v) for s, v in c if math.isfinite(v)] for n, c in named.items()}
    steps = [s for curve in shown.values() for s, _ in curve] or [1.0]
    values = [max(v, 1e-12) for curve in shown.values() for _, v in curve] or [1.0]
    values += [level[1]] if level else []
    low, high = math.log10(min(values)), math.log10(max(values))
    low, high = math.floor(low), max(math.ceil(high), math.floor(low) + 1)

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / max(steps)

    def y(value: float) -> float:
        share = (math.log10(max(value, 1e-12)) - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">1e{power}</text>')
    for k in range(5):
        step = max(steps) * k / 4
        at = f'x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 18}"'
        parts.append(f'<text {at} text-anchor="middle">{step:,.0f}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}">{along}</text>')
    if level:
        at = f"{y(level[1]):.1f}"
        line = f'<path d="M{LEFT} {at}H{WIDTH - RIGHT}" stroke="#999" stroke-dasharray="4 4"/>'
        parts += [line, f'<text x="{WIDTH - RIGHT + 6}" y="{at}">{escape(level[0])}</text>']
    for k, (name, curve) in enumerate(shown.items()):
        colour = COLOURS[k % len(COLOURS)]
        points = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in curve)
        line = f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        at = f'x="{WIDTH - RIGHT + 6}" y="{TOP + 16 * (k + 1)}" fill="{colour}"'
        parts += [line, f"<text {at}>{escape(name)}</text>"]
    return "\n".join([*parts, "</svg>"]) + "\n"
