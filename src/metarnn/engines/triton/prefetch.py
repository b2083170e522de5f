"""Values that depend on inputs alone, loaded and computed before the step that reads them.

They are computed one step ahead. What they are computed from is loaded along with them, or, where
programs poll mailboxes, yet a step before that: such a step takes no longer than a load.
"""

from __future__ import annotations

from dataclasses import replace

from metarnn.engines.codegen import statements as s
from metarnn.engines.codegen.ondemand import OnDemand
from metarnn.engines.triton import statements as t
from metarnn.engines.triton.addresses import Tile
from metarnn.engines.triton.builder import Builder, Place
from metarnn.graph.unrolled import Visit, unrolled

FIXED = ("number", "vector", "context")  # the same at all steps


class Prefetch:
    """The prefetched values of a kernel: v of this step, v_next of the next, v_raw as loaded."""

    def __init__(self, kernel: Builder) -> None:
        self.kernel, self.layout = kernel, kernel.layout
        self.loads: list[s.Statement] = []
        self.statements: list[s.Statement] = []  # that compute the values of this step
        self._tiles: dict[Tile, _TileValues] = {}
        self._read: dict[str, None] = {}  # by a step, beyond other prefetched values
        self._next: dict[str, str] = {}  # the variables for the next step

    def has(self, k: int, tile: Tile) -> bool:
        """Whether a value depends on inputs alone."""
        return self._of(tile).has(k)

    def value(self, k: int, tile: Tile) -> s.Operand:
        """Such a value at this step."""
        value = self._of(tile).value(k)
        if isinstance(value, s.Value):
            self._read.setdefault(value.name)
        return value

    def first(self) -> s.Block:
        """Before the first step."""
        if not self.statements:
            return ()
        more = [s.If("PUBLISH", self._load("1"))] if self._computes() else []
        title = s.Comment("Prefetch the inputs of the first step.")
        return (title, *self._load("0"), *self.statements, *more)

    def next(self) -> s.Block:
        """For the next step, once all that others wait for is done."""
        if not self.statements:
            return ()
        title, compute = s.Comment("Prefetch the inputs of the next step."), self._for_next_step()
        late = *self._load("s + 1"), *compute
        if not self._computes():
            return (title, *late)
        return title, s.If("PUBLISH", (*compute, *self._load("s + 2")), late)

    def advance(self) -> s.Block:
        """At the end of a step."""
        return tuple(s.Let(name, self._next[name]) for name in self._read)

    def _of(self, tile: Tile) -> _TileValues:
        if tile not in self._tiles:
            self._tiles[tile] = _TileValues(self, tile)
        return self._tiles[tile]

    def _computes(self) -> bool:
        return len(self.statements) > len(self.loads)

    def _load(self, step: str) -> s.Block:
        last = f"tl.minimum({step} + zero, steps - 1)"
        time = f"steps - 1 - {last}" if self.kernel.backward else last
        return (s.Let("t_prefetch", time), *self.loads)

    def _for_next_step(self) -> s.Block:
        """The statements that compute the values, of variables for the next step."""
        statements: list[s.Statement] = []
        for statement in self.statements:
            assert isinstance(statement, s.Elementwise | s.Let)
            if isinstance(statement, s.Let):
                name = self._next[statement.name] = self._next_name(statement.name)
                statements.append(replace(statement, name=name))
                continue
            target = statement.target
            name = self._next[target.name] = self._next_name(target.name)
            args = tuple(
                replace(a, name=self._next.get(a.name, a.name)) if isinstance(a, s.Value) else a
                for a in statement.args
            )
            statements.append(replace(statement, target=replace(target, name=name), args=args))
        return tuple(statements)

    def _next_name(self, name: str) -> str:
        return self._next.get(name) or self.kernel.names.unique(f"{name}_next")


class _TileValues(OnDemand):
    """Prefetched values that are tiles of the same units."""

    def __init__(self, prefetch: Prefetch, tile: Tile) -> None:
        super().__init__(prefetch.layout)
        self.prefetch, self.kernel, self.tile = prefetch, prefetch.kernel, tile
        self.statements = prefetch.statements
        self._possible: dict[int, bool] = {}

    def has(self, k: int) -> bool:
        return unrolled(self._has, k)

    def _has(self, k: int) -> Visit[bool]:
        if k not in self._possible:
            self._possible[k] = yield from self._depends_on_inputs(k)
        return self._possible[k]

    def _depends_on_inputs(self, k: int) -> Visit[bool]:
        root = self.flow.slice(k).root
        node = self.nodes[root]
        if node.op == "input":
            return True
        if not node.elementwise or root != k or node.width not in (1, self.tile.width):
            return False
        home = self.prefetch.layout.segment_of.get(root)
        if home is None or self.prefetch.layout.segments[home].tile != self.tile:
            return False
        roots = [self.flow.slice(a).root for a in node.args]
        varying = [r for r in roots if self.nodes[r].op not in FIXED]
        for r in varying:
            if not (yield r):
                return False
        return bool(varying)

    def computes(self, k: int) -> bool:
        return True

    def name(self, k: int) -> str:
        return self.kernel.variable(self.flow.slice(k), ("prefetch", self.tile))

    def source(self, k: int) -> s.Operand:
        key = self.flow.slice(k)
        node = self.nodes[key.root]
        if node.op != "input":
            return self.kernel.constant(key, self.tile)
        name = self.name(k)
        array = self.kernel.pointer("input", node["name"])
        place = Place(array, f"{array} + t_prefetch * B * {node.width}")
        axes, address = self.kernel.read(key, place, self.tile)
        raw = s.Value(self.kernel.names.unique(f"{name}_raw"), axes)
        self.prefetch.loads.append(t.RawLoad(raw, address))
        self.statements.append(s.Let(name, f"{raw.name}.to(tl.float32)"))
        return s.Value(name, axes)
