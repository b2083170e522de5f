"""Rows of cells as a picture (SVG): a tape over time, a board."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

CELL, LEFT, TOP = 8, 12, 36


def grid(rows: Sequence[Sequence[float]], title: str) -> str:
    """Cells from white (0) to blue (1), a row below the other.

    >>> grid([[0, 1], [1, 0]], "two moves").count("<rect")
    3
    """
    width = 2 * LEFT + CELL * max((len(row) for row in rows), default=0)
    width = max(width, 2 * LEFT + 8 * len(title))
    height = TOP + CELL * len(rows) + LEFT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
    ]
    for y, row in enumerate(rows):
        for x, value in enumerate(row):
            if value > 0:
                at = f'x="{LEFT + CELL * x}" y="{TOP + CELL * y}" width="{CELL}" height="{CELL}"'
                parts.append(f'<rect {at} fill="#1b6ca8" fill-opacity="{min(value, 1):g}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"
