"""Lines over an axis, as SVG that a page can colour and a person can point at."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from metarnn.report.markup import Markup, figure, join, table, tag

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720.0, 320.0, 58.0, 14.0, 14.0, 44.0
MOST = 400  # points of a line: more than a screen shows
LISTED = 60  # rows of the table below a plot
COLOURS = 8  # that page.css has

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """Points of a line, from left to right; `low` and `high`, as many, are a band around it.

    colour  its number in the palette; lines of one colour belong together
    dashed  for what is there to compare with
    """

    points: Sequence[Point]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    colour: int | None = None
    dashed: bool = False


@dataclass(frozen=True)
class Plot:
    """Lines by name, and the names of both axes.

    logarithmic  of y; values of 0 and less are then left out
    labels       for whole numbers x, such as the token read there, or a date
    mark         an x to mark, with its name: where a forecast begins
    """

    lines: Mapping[str, Line]
    title: str
    x: str
    y: str
    logarithmic: bool = False
    labels: Sequence[str] = ()
    mark: tuple[float, str] | None = None
    about: str = ""
    limits: tuple[float, float] | None = None

    def figure(self, caption: str = "") -> Markup:
        """The plot with its numbers; empty where there is nothing to plot."""
        shown = {name: thinned(line, self.logarithmic) for name, line in self.lines.items()}
        shown = {name: line for name, line in shown.items() if line.points}
        if not shown:
            return Markup("")
        data = json.dumps(self._data(shown), ensure_ascii=False)
        frame = Frame.around(shown, self.logarithmic, self.limits)
        picture = tag(
            "div",
            tag("p", self.title, cls="name"),
            legend(shown) if list(shown) != [self.y] else None,
            self._svg(shown, frame),
            tag("output", cls="tip", aria_live="polite", hidden=True),
            cls="plot",
            data_plot=data,
        )
        return figure(picture, caption or None, self._table(shown))

    def _svg(self, shown: Mapping[str, Line], frame: Frame) -> Markup:
        what = self.about or f"{self.y} against {self.x}: {', '.join(shown)}."
        parts = [tag("title", self.title), tag("desc", what), *frame.axes(self)]
        if self.mark:
            at = frame.x(self.mark[0])
            parts.append(_rule((at, TOP), (at, HEIGHT - BOTTOM), "mark"))
            parts.append(_text(at + 5, TOP + 11, self.mark[1], "tick"))
        for number, (_, line) in enumerate(shown.items()):
            parts += _drawn(line, frame, _colour(line, number))
        parts.append(tag("g", cls="cursor"))
        return tag(
            "svg",
            parts,
            viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
            role="img",
            aria_label=self.title,
            tabindex="0",
        )

    def _data(self, shown: Mapping[str, Line]) -> dict[str, object]:
        """What the script needs to answer a pointer: places in the picture, and words."""
        frame = Frame.around(shown, self.logarithmic, self.limits)
        series = []
        for number, (name, line) in enumerate(shown.items()):
            bands = list(zip(line.low, line.high, strict=True)) or [()] * len(line.points)
            series.append(
                {
                    "name": name,
                    "colour": _colour(line, number),
                    "at": [[round(frame.x(x), 1), round(frame.y(y), 1)] for x, y in line.points],
                    "x": [self._where(x) for x, _ in line.points],
                    "y": [
                        short(y) + (f" ({short(b[0])} to {short(b[1])})" if b else "")
                        for (_, y), b in zip(line.points, bands, strict=True)
                    ],
                }
            )
        return {"x": self.x, "top": TOP, "bottom": HEIGHT - BOTTOM, "series": series}

    def _where(self, x: float) -> str:
        if self.labels and 0 <= x < len(self.labels) and float(x).is_integer():
            return self.labels[int(x)]
        return short(x)

    def _table(self, shown: Mapping[str, Line]) -> Markup:
        places = sorted({x for line in shown.values() for x, _ in line.points})
        if len(places) > LISTED:
            step = (len(places) - 1) / (LISTED - 1)
            places = sorted({places[round(k * step)] for k in range(LISTED)})
        values = [dict(line.points) for line in shown.values()]
        rows = [[self._where(x), *(short(v[x]) if x in v else "" for v in values)] for x in places]
        return table([self.x, *shown], rows, f"{self.title}: numbers")


@dataclass(frozen=True)
class Frame:
    """Where numbers are in the picture."""

    left: float
    right: float
    low: float
    high: float
    logarithmic: bool

    @classmethod
    def around(
        cls, lines: Mapping[str, Line], log: bool, limits: tuple[float, float] | None = None
    ) -> Frame:
        xs = [x for line in lines.values() for x, _ in line.points]
        ys = [y for line in lines.values() for _, y in line.points]
        ys += [v for line in lines.values() for v in (*line.low, *line.high)]
        ys = [y for y in ys if math.isfinite(y) and (y > 0 or not log)] or [1.0]
        low, high = limits or (min(ys), max(ys))
        if log:
            low, high = math.log10(low), math.log10(high)
        gap = (high - low) or abs(high) or 1.0
        if not limits:
            low, high = low - 0.06 * gap, high + 0.06 * gap
        return cls(min(xs), max(xs), low, high, log)

    def x(self, value: float) -> float:
        share = (value - self.left) / ((self.right - self.left) or 1.0)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        if self.logarithmic:
            value = math.log10(value) if value > 0 else self.low
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM)

    def axes(self, plot: Plot) -> Iterator[Markup]:
        for value, label in self._heights():
            y = self.y(value)
            yield _rule((LEFT, y), (WIDTH - RIGHT, y), "grid")
            yield _text(LEFT - 8, y + 4, label, "tick", "end")
        yield from self._across(plot)
        middle = (LEFT + WIDTH - RIGHT) / 2
        yield _text(middle, HEIGHT - 6, plot.x, "axis", "middle")
        at = (TOP + HEIGHT - BOTTOM) / 2
        turn = f"rotate(-90 12 {at:.0f})"
        yield tag("text", plot.y, x=12, y=f"{at:.0f}", cls="axis", text_anchor="middle",
                  transform=turn)  # fmt: skip

    def _across(self, plot: Plot) -> Iterator[Markup]:
        if not plot.labels:
            for value in nice(self.left, self.right, 6):
                yield _text(self.x(value), HEIGHT - BOTTOM + 18, short(value), "tick", "middle")
            return
        taken, number = -math.inf, 0
        for k in range(math.ceil(self.left), math.floor(self.right) + 1):
            label = plot.labels[k] if 0 <= k < len(plot.labels) else ""
            half = 3.6 * len(label) + 1.5
            if label and self.x(k) - half >= taken:
                taken, number = self.x(k) + half, number + 1
                cls = "tick" if number % 2 else "tick extra"  # a phone has room for half of them
                yield _text(self.x(k), HEIGHT - BOTTOM + 18, label, cls, "middle")

    def _heights(self) -> list[tuple[float, str]]:
        if not self.logarithmic:
            return [(v, short(v)) for v in nice(self.low, self.high, 5)]
        powers = range(math.ceil(self.low), math.floor(self.high) + 1)
        if len(powers) >= 2:
            step = math.ceil(len(powers) / 7)
            return [(10.0**p, f"1e{p}" if abs(p) > 3 else short(10.0**p)) for p in powers[::step]]
        return [(10**v, short(10**v)) for v in nice(self.low, self.high, 5)]


def thinned(line: Line, logarithmic: bool = False) -> Line:
    """The same with finite points only, and no more than a screen can show."""
    there = [
        k
        for k, (x, y) in enumerate(line.points)
        if math.isfinite(x) and math.isfinite(y) and (y > 0 or not logarithmic)
    ]
    if len(there) > MOST:
        step = (len(there) - 1) / (MOST - 1)
        there = [there[round(k * step)] for k in range(MOST)]
    low, high = ([band[k] for k in there] if band else () for band in (line.low, line.high))
    return replace(line, points=[line.points[k] for k in there], low=low, high=high)


def nice(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers between two.

    >>> nice(0.0, 97.0, 5)
    [0.0, 20.0, 40.0, 60.0, 80.0]
    """
    gap = high - low
    if not math.isfinite(gap) or gap <= 0:
        return [low]
    rough = gap / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((m for m in (1, 2, 5, 10) if m * power >= rough * 0.999), default=10) * power
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def short(value: float) -> str:
    """A number as a person reads it.

    >>> [short(v) for v in (0.0, 1200.0, 1234567.0, 0.012345, 3.14159, 1.2e-7)]
    ['0', '1,200', '1.23M', '0.01235', '3.142', '1.2e-07']
    """
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g}M"
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.4g}"


def legend(lines: Mapping[str, Line]) -> Markup:
    """Names beside their colours."""
    keys = [
        tag("li", tag("i", cls=f"c{_colour(line, k)}" + " dashed" * line.dashed), name)
        for k, (name, line) in enumerate(lines.items())
    ]
    return tag("ul", keys, cls="legend")


def _drawn(line: Line, frame: Frame, colour: int) -> Iterator[Markup]:
    if line.low:
        xs = [frame.x(x) for x, _ in line.points]
        down = [f"{x:.1f},{frame.y(v):.1f}" for x, v in zip(xs, line.high, strict=True)]
        back = [f"{x:.1f},{frame.y(v):.1f}" for x, v in zip(xs, line.low, strict=True)]
        yield tag("polygon", points=" ".join(down + back[::-1]), cls=f"band c{colour}")
    places = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in line.points)
    yield tag("polyline", points=places, cls=f"line c{colour}" + " dashed" * line.dashed)
    if len(line.points) == 1:
        x, y = line.points[0]
        yield tag("circle", cx=f"{frame.x(x):.1f}", cy=f"{frame.y(y):.1f}", r="3.5",
                  cls=f"dot c{colour}")  # fmt: skip


def _colour(line: Line, number: int) -> int:
    return (number if line.colour is None else line.colour) % COLOURS


def _rule(a: Point, b: Point, cls: str) -> Markup:
    path = f"M{a[0]:.1f},{a[1]:.1f} L{b[0]:.1f},{b[1]:.1f}"
    return tag("path", d=path, cls=cls)


def _text(x: float, y: float, text: str, cls: str, anchor: str = "start") -> Markup:
    return tag("text", join(text), x=f"{x:.1f}", y=f"{y:.1f}", cls=cls, text_anchor=anchor)
