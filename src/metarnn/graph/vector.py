"""The few shapes that drawings are made of, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

BLUE, GREEN = "#d0ebff", "#d3f9d8"
INK, LINE, LOOP = "#212529", "#868e96", "#2b8a3e"
# Of the curves in one picture, one after the other.
COLORS = ("#1971c2", "#e8590c", "#2f9e44", "#9c36b5", "#0c8599", "#e03131")
SIZE, SMALL = 14.0, 11.0

Point = tuple[float, float]


class Canvas:
    """Collects shapes; `shift` moves what is drawn after it."""

    def __init__(self) -> None:
        self.shapes: list[str] = []
        self.shift: Point = (0.0, 0.0)

    def fit(self, label: str, small: bool = False) -> tuple[float, float]:
        """The size of a box around a label."""
        size = SMALL if small else SIZE
        wide = sum(_widths(label, size)) + (10 if small else 18)
        return max(wide, 22.0 if small else 34.0), 18.0 if small else 30.0

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        label: str,
        fill: str,
        small: bool = False,
    ) -> None:
        """A rounded box around (x, y)."""
        x, y = x + self.shift[0], y + self.shift[1]
        left, top, round_ = x - width / 2, y - height / 2, 5 if small else 8
        self.shapes.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'rx="{round_}" fill="{fill}" stroke="{LINE}"/>'
        )
        self._text(x, y, label, SMALL if small else SIZE)

    def text(self, x: float, y: float, label: str, size: float = SIZE) -> None:
        self._text(x + self.shift[0], y + self.shift[1], label, size)

    def _text(self, x: float, y: float, label: str, size: float) -> None:
        """A label in the middle of (x, y); what follows the first underscore is set below."""
        name, _, below = label.partition("_")
        pieces = [(name, x, y + size * 0.34, size, "middle")]
        if below:  # set apart: programs differ in where they put spans of one text
            wide, narrow = _widths(label, size)
            seam, low = x + (wide - narrow) / 2, y + size * 0.58
            pieces = [(name, seam, y + size * 0.34, size, "end")]
            pieces.append((below, seam + 0.5, low, 0.75 * size, "start"))
        for text, at, base, height, anchor in pieces:
            self.shapes.append(
                f'<text x="{at:.1f}" y="{base:.1f}" font-size="{height:.1f}" '
                f'text-anchor="{anchor}" fill="{INK}">{escape(text)}</text>'
            )

    def curve(self, points: Sequence[Point], color: str = LINE) -> None:
        """A smooth line through the points, level at each of them, with a head at its end."""
        moved = [(x + self.shift[0], y + self.shift[1]) for x, y in points]
        path = f"M{moved[0][0]:.1f},{moved[0][1]:.1f}"
        for (x1, y1), (x2, y2) in pairwise(moved):
            if abs(y1 - y2) < 0.05:
                path += f" L{x2:.1f},{y2:.1f}"
            else:
                middle = (x1 + x2) / 2
                path += f" C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
        self.shapes.append(f'<path d="{path}" {_pen(color)}/>')

    def corners(self, points: Sequence[Point], radius: float = 8.0) -> None:
        """A dashed line of level and upright pieces with rounded corners."""
        moved = [(x + self.shift[0], y + self.shift[1]) for x, y in points]
        path = f"M{moved[0][0]:.1f},{moved[0][1]:.1f}"
        for before, at, after in zip(moved, moved[1:], moved[2:], strict=False):
            start, end = _towards(at, before, radius), _towards(at, after, radius)
            path += f" L{start[0]:.1f},{start[1]:.1f} Q{at[0]:.1f},{at[1]:.1f}"
            path += f" {end[0]:.1f},{end[1]:.1f}"
        path += f" L{moved[-1][0]:.1f},{moved[-1][1]:.1f}"
        self.shapes.append(f'<path d="{path}" {_pen(LOOP)} stroke-dasharray="5 3"/>')

    def line(self, a: Point, b: Point, color: str = LINE) -> None:
        (x1, y1), (x2, y2) = a, b
        dx, dy = self.shift
        self.shapes.append(
            f'<path d="M{x1 + dx:.1f},{y1 + dy:.1f} L{x2 + dx:.1f},{y2 + dy:.1f}" {_pen(color)}/>'
        )

    def rule(self, a: Point, b: Point, color: str = LINE) -> None:
        """A plain line, without a head."""
        self.path([a, b], color)

    def path(self, points: Sequence[Point], color: str = LINE) -> None:
        """Straight pieces from point to point."""
        if not points:
            return
        moved = (f"{x + self.shift[0]:.1f},{y + self.shift[1]:.1f}" for x, y in points)
        self.shapes.append(
            f'<path d="M{" L".join(moved)}" fill="none" stroke="{color}" stroke-width="1.4"/>'
        )

    def document(self, width: float, height: float, title: str) -> str:
        heads = "".join(
            f'<marker id="head{color[1:]}" viewBox="0 0 8 8" refX="7.5" refY="4" '
            'markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0,0.8 L8,4 L0,7.2 z" fill="{color}"/></marker>'
            for color in (LINE, LOOP)
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
                f'height="{height:.0f}" viewBox="0 0 {width:.1f} {height:.1f}" '
                'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" role="img">',
                f"<title>{escape(title)}</title>",
                f"<defs>{heads}</defs>",
                '<rect width="100%" height="100%" fill="#ffffff"/>',
                *self.shapes,
                "</svg>\n",
            ]
        )


def _widths(label: str, size: float) -> tuple[float, float]:
    """About how wide a label and what is set below it are, in any common font."""
    name, _, below = label.partition("_")
    return 0.62 * size * len(name), 0.62 * 0.75 * size * len(below)


def _pen(color: str) -> str:
    return f'fill="none" stroke="{color}" stroke-width="1.4" marker-end="url(#head{color[1:]})"'


def _towards(a: Point, b: Point, distance: float) -> Point:
    """The point at a distance from a on the way to b, but never beyond half of it."""
    length = abs(b[0] - a[0]) + abs(b[1] - a[1])
    share = min(distance / length, 0.5) if length else 0.0
    return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])
