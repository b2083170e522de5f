"""Where the boxes of a drawing go: layers from left to right, few crossings, short edges.

Sugiyama's method: each box a layer, bends where an edge passes a layer, an order within each layer
that crosses few edges, then places within the layers that keep the edges straight.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

GAP_X, GAP_Y, BEND = 40.0, 16.0, 4.0
SWEEPS = 24

Key = Hashable
Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """The middle of each box, the points of each edge, and the size of it all."""

    boxes: dict[Key, Point]
    routes: list[list[Point]]
    width: float
    height: float


def arrange(
    sizes: Mapping[Any, tuple[float, float]],
    edges: Sequence[tuple[Any, Any]],
    first: Sequence[Any] = (),
    last: Sequence[Any] = (),
) -> Layout:
    """Place boxes of these sizes (width, height), given in an order in which edges point onwards.

    Boxes in `first` and `last` are at the left and right end.
    """
    layer = _layers(list(sizes), edges, first, last)
    count = max(layer.values()) + 1
    rows: list[list[Key]] = [[] for _ in range(count)]
    for key in sizes:
        rows[layer[key]].append(key)
    height: dict[Key, float] = {key: h for key, (_, h) in sizes.items()}
    chains: list[list[Key]] = []  # each edge as a path from layer to layer
    for number, (a, b) in enumerate(edges):
        bends: list[Key] = [("bend", number, k) for k in range(layer[a] + 1, layer[b])]
        for bend in bends:
            rows[bend[2]].append(bend)  # type: ignore[index]
            height[bend] = BEND
        chains.append([a, *bends, b])
    links = [link for chain in chains for link in pairwise(chain)]
    before: dict[Key, list[Key]] = {key: [] for row in rows for key in row}
    after: dict[Key, list[Key]] = {key: [] for row in rows for key in row}
    for a, b in links:
        after[a].append(b)
        before[b].append(a)

    rows = _ordered(rows, before, after)
    y = _heights(rows, before, after, height, chains)
    low = min(y[key] - height[key] / 2 for key in y)
    widths = [max((sizes[k][0] for k in row if k in sizes), default=0.0) for row in rows]
    middle = [sum(widths[:k]) + k * GAP_X + widths[k] / 2 for k in range(count)]
    boxes = {key: (middle[layer[key]], y[key] - low) for key in sizes}
    routes = []
    for chain in chains:
        a, b = chain[0], chain[-1]
        # Level through the whole of each layer, so that it meets no box there.
        points = [(boxes[a][0] + sizes[a][0] / 2, boxes[a][1])]
        points.append((middle[layer[a]] + widths[layer[a]] / 2, boxes[a][1]))
        for bend in chain[1:-1]:
            at = bend[2]  # type: ignore[index]
            for side in (-1, 1):
                points.append((middle[at] + side * widths[at] / 2, y[bend] - low))
        points.append((middle[layer[b]] - widths[layer[b]] / 2, boxes[b][1]))
        routes.append([*points, (boxes[b][0] - sizes[b][0] / 2, boxes[b][1])])
    _spread(routes, edges, sizes)
    high = max(y[key] + height[key] / 2 for key in y)
    return Layout(boxes, routes, sum(widths) + (count - 1) * GAP_X, high - low)


def _layers(
    keys: list[Key], edges: Sequence[tuple[Key, Key]], first: Sequence[Key], last: Sequence[Key]
) -> dict[Key, int]:
    layer = dict.fromkeys(keys, 0)
    arrows: dict[Key, list[Key]] = {key: [] for key in keys}
    for a, b in edges:
        arrows[a].append(b)
    for a in keys:
        for b in arrows[a]:
            layer[b] = max(layer[b], layer[a] + 1)
    end = max([layer[key] for key in keys if key not in last], default=0) + bool(last)
    for key in last:
        layer[key] = end
    # A weight stands next to what it enters; anything else that nothing enters stays left.
    entered = {b for _, b in edges}
    for key in reversed(keys):
        if key not in first and key not in entered and arrows[key]:
            layer[key] = max(0, min(layer[b] for b in arrows[key]) - 1)
    return layer


def _ordered(
    rows: list[list[Key]], before: dict[Key, list[Key]], after: dict[Key, list[Key]]
) -> list[list[Key]]:
    """Each box near the middle of its neighbours in the last layer looked at, back and forth."""
    best, fewest = [list(row) for row in rows], _crossings(rows, after)
    rows = [list(row) for row in rows]
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        order = range(1, len(rows)) if forward else range(len(rows) - 2, -1, -1)
        neighbours = before if forward else after
        for at in order:
            place = {key: k for k, key in enumerate(rows[at - 1 if forward else at + 1])}
            old = {key: k for k, key in enumerate(rows[at])}

            def middle(key: Key, place: dict[Key, int] = place, old: dict[Key, int] = old) -> float:
                near = [place[n] for n in neighbours[key]]  # noqa: B023  used at once
                return sum(near) / len(near) if near else old[key]

            rows[at].sort(key=middle)
        crossings = _crossings(rows, after)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _crossings(rows: list[list[Key]], after: dict[Key, list[Key]]) -> int:
    total = 0
    for left, right in pairwise(rows):
        place = {key: k for k, key in enumerate(right)}
        ends = [sorted(place[b] for b in after[a]) for a in left]
        flat = [k for group in ends for k in group]
        total += sum(flat[i] > k for j, k in enumerate(flat) for i in range(j))
    return total


def _heights(
    rows: list[list[Key]],
    before: dict[Key, list[Key]],
    after: dict[Key, list[Key]],
    height: dict[Key, float],
    chains: list[list[Key]],
) -> dict[Key, float]:
    """Vertical places: near the neighbours', in order, at a distance from one another."""
    y: dict[Key, float] = {}
    chain = {bend: path for path in chains for bend in path[1:-1]}
    for row in rows:
        at = 0.0
        for key in row:
            y[key] = at + height[key] / 2
            at += height[key] + GAP_Y
    for sweep in range(3 * SWEEPS):
        straight = sweep >= 2 * SWEEPS  # at last, the bends of an edge on one level
        forward = sweep % 2 == 0
        for row in rows if forward else reversed(rows):
            wishes = []
            for key in row:
                near = before[key] if forward else after[key]
                near = near if sweep < SWEEPS and near else before[key] + after[key]
                near = chain[key][1:-1] if straight and key in chain else near
                wishes.append(sum(y[n] for n in near) / len(near) if near else y[key])
            weights = [8.0 if straight and key in chain else 1.0 for key in row]
            for key, value in zip(row, _apart(row, wishes, weights, height), strict=True):
                y[key] = value
    return y


def _apart(
    row: list[Key], wishes: list[float], weights: list[float], height: dict[Key, float]
) -> list[float]:
    """The places nearest to the wishes (least squares) that keep order and distance."""
    offsets, at = [], 0.0
    for a, b in pairwise([row[0], *row]) if row else []:
        at += 0.0 if a is b else (height[a] + height[b]) / 2 + GAP_Y
        offsets.append(at)
    groups: list[tuple[float, float, int]] = []  # of those that move as one: sum, weight, number
    for wish, weight, offset in zip(wishes, weights, offsets, strict=True):
        groups.append((weight * (wish - offset), weight, 1))
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            last, before = groups.pop(), groups.pop()
            groups.append((before[0] + last[0], before[1] + last[1], before[2] + last[2]))
    level = [total / weight for total, weight, number in groups for _ in range(number)]
    return [a + b for a, b in zip(level, offsets, strict=True)]


def _spread(
    routes: list[list[Point]],
    edges: Sequence[tuple[Key, Key]],
    sizes: Mapping[Any, tuple[float, float]],
) -> None:
    """Several edges into one box arrive side by side, in the order in which they come."""
    arriving: dict[Key, list[int]] = {}
    for number, (_, b) in enumerate(edges):
        arriving.setdefault(b, []).append(number)
    for b, numbers in arriving.items():
        numbers.sort(key=lambda number: routes[number][-3][1])
        room = min(12.0, sizes[b][1] * 0.7 / len(numbers))
        for k, number in enumerate(numbers):
            down = (k - (len(numbers) - 1) / 2) * room
            routes[number][-2:] = [(x, y + down) for x, y in routes[number][-2:]]
