"""What depends on inputs alone, loaded and computed before its step, as text.

Its values are computed one step ahead. What they are computed of is loaded with them, or a step
before that where nobody meets: such a step takes no longer than a load.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from metarnn.engines.triton.layout import Layout
from metarnn.engines.triton.text import FLOAT, expression, indented, number, prefixed
from metarnn.graph.unrolled import Visit, unrolled

if TYPE_CHECKING:
    from metarnn.engines.triton.units import Units

FIXED = ("number", "vector", "context")  # the same at all steps


class Early:
    """The values of a kernel that only inputs tell: e of this step, f of the next, q as loaded."""

    def __init__(self, layout: Layout, backward: bool) -> None:
        self.layout, self.nodes, self.backward = layout, layout.nodes, backward
        self._known: dict[tuple[int, str], bool] = {}  # by node and kind of tile
        self._loaded: list[str] = []
        self._lines: dict[str, str] = {}  # by name; @ is a prefix
        self._read: dict[str, None] = {}  # the names that the body reads

    def has(self, units: Units, k: int) -> bool:
        """Whether inputs alone tell a value."""
        return unrolled(partial(self._has, units), k)

    def _has(self, units: Units, k: int) -> Visit[bool]:
        if (k, units.tag) not in self._known:
            self._known[k, units.tag] = yield from self._told_by_inputs(units, k)
        return self._known[k, units.tag]

    def value(self, units: Units, k: int) -> str:
        """The name of such a value at this step."""
        name = unrolled(partial(self._name, units), k)[1:]
        self._read.setdefault(name)
        return f"e{name}"

    def first(self) -> list[str]:
        """Lines before the first step."""
        if not self._lines:
            return []
        further = ["if TOLD:", *indented(self._loads("1"))] if self._computes() else []
        return [*self._loads("0"), *prefixed(self._lines.values(), "e"), *further]

    def ahead(self) -> list[str]:
        """Lines that prepare the next step."""
        if not self._lines:
            return []
        values = prefixed(self._lines.values(), "f")
        far, near = [*values, *self._loads("s + 2")], [*self._loads("s + 1"), *values]
        return ["if TOLD:", *indented(far), "else:", *indented(near)] if self._computes() else near

    def passed_on(self) -> list[str]:
        """Lines at the end of a step."""
        return [f"e{name} = f{name}" for name in self._read]

    def _loads(self, step: str) -> list[str]:
        last = f"tl.minimum({step} + zero, steps - 1)"
        return [f"tt = steps - 1 - {last}" if self.backward else f"tt = {last}", *self._loaded]

    def _computes(self) -> bool:
        return len(self._lines) > len(self._loaded)

    def _told_by_inputs(self, units: Units, k: int) -> Visit[bool]:
        root, _ = self.layout.root(k)
        node = self.nodes[root]
        if node.op == "input":
            return True
        if not node.elementwise or root != k or node.width not in (1, units.n):
            return False
        home = self.layout.home.get(root)
        if home is None or not units.alike(home):
            return False
        roots = [self.layout.root(a)[0] for a in node.args]
        computed = [r for r in roots if self.nodes[r].op not in FIXED]
        for r in computed:
            if not (yield r):
                return False
        return bool(computed)

    def _name(self, units: Units, k: int) -> Visit[str]:
        root, start = self.layout.root(k)
        node = self.nodes[k]
        if node.op == "number":
            return number(node["value"])
        if self.nodes[root].op in ("vector", "context"):
            return units.fixed(root, start, node.width)
        name = f"@{root}_{start}_{node.width}_{units.tag}"
        if name in self._lines:
            return name
        if self.nodes[root].op == "input":
            array = units.e.array("input", self.nodes[root]["name"])
            place = f"{array} + tt * B * {self.nodes[root].width}"
            load = units.load(place, root, start, node.width)
            self._loaded.append(f"q{name[1:]} = {load.removesuffix(FLOAT)}")
            text = f"q{name[1:]}{FLOAT}"
        else:
            args: list[str] = []
            for a in node.args:
                args.append((yield a))
            text = expression(node, args, self.nodes)
        self._lines[name] = f"{name} = {text}"
        return name
