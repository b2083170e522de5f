"""A segment over units as text: values are tiles [BB, U] of a program's units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metarnn.engines.triton.layout import GATES, Segment
from metarnn.engines.triton.program import Block, Group
from metarnn.engines.triton.text import expression, number, store
from metarnn.engines.triton.tiling import SHORTEST

if TYPE_CHECKING:
    from metarnn.engines.triton.emit import Emitter


class Units:
    """A segment over units: values are tiles [BB, U] of this program's units."""

    def __init__(self, emitter: Emitter, segment: Segment, number: int) -> None:
        self.e, self.segment, self.number = emitter, segment, number
        self.layout, self.nodes, self.n = emitter.layout, emitter.nodes, segment.width
        emitter.width(self.n)
        self.out: list[str] = []

    def lines(self) -> tuple[list[str], list[str], list[str]]:
        """What need not wait for others, what they wait for, and what they need not be told of."""
        awaited = self.layout.awaited.get(self.number, set())
        groups = self._groups()
        late = [(g, a) for g, a in groups if self.layout.root(a)[0] in awaited]
        for group, argument in (each for each in groups if each not in late):
            self._product(group, argument)
        ahead, self.out = self.out, []
        for group, argument in late:
            self._product(group, argument)
        segment = self.segment
        nodes = (*segment.products, *segment.rest, *segment.loose)
        stores = [(k, place, waits) for k in nodes for place, waits in self.e.targets(k)]
        for k, place, _ in (each for each in stores if each[2]):
            self._store(k, place, ".cg")
        urgent, self.out = self.out, []
        for k, place, _ in (each for each in stores if not each[2]):
            self._store(k, place, "")
        for k in nodes:
            for name in self.e.sums(k):
                self._add(k, name)
        return ahead, urgent, self.out

    def _store(self, k: int, place: str, cache: str) -> None:
        node, n = self.nodes[k], self.n
        if node.width == 1 != n:
            self.out.append(store(f"{place} + rb", self.value(k), 0, cache))
            return
        for start, value in self._parts(k):
            address = f"{place} + rb * {node.width} + {start} + u{n}"
            self.out.append(store(address, value, n, cache))

    def _add(self, k: int, name: str) -> None:
        """Add a node to its sum over time."""
        array, n = self.e.array("sum", name), self.n
        for start, value in self._parts(k):
            total = f"total{array[1:]}_{start}"
            self.e.before.append(f"{total} = tl.zeros((BB, U{n}), tl.float32)")
            self.out.append(f"{total} += {value}")
            address = f"{array} + rb * {self.nodes[k].width} + {start} + u{n}"
            self.e.after.append(store(address, total, n))

    def _parts(self, k: int) -> list[tuple[int, str]]:
        """A node as tiles: (where in the row it begins, its value)."""
        node, n = self.nodes[k], self.n
        if node.op == "join":
            return [(i * n, self.value(a)) for i, a in enumerate(node.args)]
        if node.op == "linear":
            return [(start, self._block(k, start)) for start in range(0, node.width, n)]
        return [(0, self.value(k))]

    def _groups(self) -> list[tuple[Group, int]]:
        """The segment's products, those with the same argument as one, each with its argument."""
        found: list[tuple[Group, int]] = []
        arguments: dict[int, list[Block]] = {}
        for k in self.segment.products:
            argument, offset = self._argument(k)
            for start in range(0, self.nodes[k].width, self.n):
                arguments.setdefault(argument, []).append(self._slice(k, start, offset))
        for argument, blocks in arguments.items():
            # More blocks would leave a program too few units of each.
            for first in range(0, len(blocks), GATES):
                part = tuple(blocks[first : first + GATES])
                inner = self.nodes[argument].width
                group = Group(len(self.e.groups), self.n, inner, part)
                self.e.groups.append(group)
                found.append((group, argument))
        return found

    def _argument(self, k: int) -> tuple[int, int | None]:
        """The rows that a product reads, and from where on if not all of them.

        Of short rows all is read, though a product may need a few: its other weights are 0. So
        products of several parts of a row are one.
        """
        (argument,) = self.nodes[k].args
        root, start = self.layout.root(argument)
        short = self.nodes[root].op == "linear" and self.nodes[root].width <= SHORTEST
        return (root, start) if short and root != argument else (argument, None)

    def _slice(self, k: int, start: int, offset: int | None) -> Block:
        node = self.nodes[k]
        columns = node["start"], node["stop"]
        return Block(
            k, start, node["map"], columns, node.attributes.get("transposed", False), offset
        )

    def _product(self, group: Group, argument: int) -> None:
        j, n, size = group.number, self.n, group.padded
        root, start = self.layout.root(argument)
        width = self.nodes[root].width
        rows = "" if self.nodes[root].op == "vector" else f"alike(rb * {width}, PARTS{j}) + "
        packed = self.e.array("pack", str(j))
        held = f"HELD{j}"
        self.e.fixed |= dict.fromkeys([
            f"k{j} = inner(CHUNK{j}, PARTS{j})",
            f"o{j} = columns(U{n} * {size}, INNER{j}, CHUNK{j}, PARTS{j})",
            f"p{j} = {packed} + me.to(tl.int64) * (INNER{j} * U{n} * {size}) + o{j}",
            f"l{j} = P * INNER{j} * U{n} * {size}",
            f"if {held}:",
            f"    w_{j} = tl.load(p{j})",
            f"    v_{j} = tl.load(p{j} + l{j}) if SPLIT else w_{j}",
        ])  # fmt: skip
        load = (
            f"tl.load(x{j}, mask=alike(mb, PARTS{j}) & (k{j} < {group.inner}), other=0.0, "
            'cache_modifier=".cg").to(DOT)'
        )
        chunk = load.replace(f"x{j},", f"x{j} + k,").replace(f"(k{j} <", f"(k{j} + k <")
        self.out += [
            f"x{j} = {self.e.place(root)} + {start} + {rows}k{j}",
            f"if {held}:",
            f"    d{j} = dot({load}, w_{j}, v_{j}, SPLIT)",
            "else:",
            f"    d{j} = nothing(BB, U{n} * {size}, PARTS{j})",
            f"    for k in range(0, INNER{j}, CHUNK{j}):",
            f"        w_{j} = tl.load(p{j} + k)",
            f"        v_{j} = tl.load(p{j} + l{j} + k) if SPLIT else w_{j}",
            f"        d{j} += dot({chunk}, w_{j}, v_{j}, SPLIT)",
            f"d{j} = together(d{j}, PARTS{j})",
        ]
        names = self._split(f"d{j}", size)
        for name, block in zip(names, group.blocks, strict=False):
            if self.nodes[block.product]["bias"]:
                bias = self.e.array("bias", self.nodes[block.product]["map"])
                term = f"b{block.product}_{block.start}"
                load = f"tl.load({bias} + {block.start} + u{n}, mask=w{n}, other=0.0)"
                self.e.fixed[f"{term} = {load}.to(tl.float32)"] = None
                self.out.append(f"{name} += {term}")
            self.e.known[block.product, block.start, n] = name

    def _split(self, name: str, count: int) -> list[str]:
        """The names of the blocks of a product, in order."""
        if count == 1:
            return [name]
        even, odd = f"{name}e", f"{name}o"
        self.out.append(f"{even}, {odd} = split2({name}, BB, U{self.n}, {count // 2})")
        evens, odds = self._split(even, count // 2), self._split(odd, count // 2)
        return [half for pair in zip(evens, odds, strict=True) for half in pair]

    def _block(self, k: int, start: int) -> str:
        return self.e.known[k, start, self.n]

    def value(self, k: int) -> str:
        """The name of a value, after the lines that compute or load it."""
        node = self.nodes[k]
        root, start = self.layout.root(k)
        if node.op == "number":
            return number(node["value"])
        kind, width = self.nodes[root].op, node.width
        if kind in ("vector", "context"):
            return self._fixed(root, start, width)
        if self._is_early(k):
            return self._ahead(k)
        whole = start == 0 and width == self.nodes[root].width == self.n
        if kind == "state" and whole and self.nodes[root]["index"] in self.layout.carried:
            return f"s{self.nodes[root]['index']}"
        if (root, start, width) in self.e.known:
            name = self.e.known[root, start, width]
            if not name.startswith("z") or name.endswith(f"_{self.number}"):
                return name
        return self._compute(k, root, start)

    def _compute(self, k: int, root: int, start: int) -> str:
        node = self.nodes[k]
        here = self.layout.home.get(root)
        same = here is not None and self.layout.segments[here].width == self.n
        if same and node.elementwise and (node.width in (1, self.n)):
            name, text = f"y{k}", expression(node, [self.value(a) for a in node.args], self.nodes)
        else:  # from memory; the name ends with the segment, since another step may write between
            name = f"z{root}_{start}_{node.width}_{self.number}"
            text = self._load(self.e.place(root), root, start, node.width, ".cg")
        self.e.known[root, start, node.width] = name
        self.out.append(f"{name} = {text}")
        return name

    def _load(self, place: str, root: int, start: int, width: int, cache: str = "") -> str:
        row = "" if self.nodes[root].op == "vector" else f" + rb * {self.nodes[root].width}"
        unit, mask = ("", "mb") if width == 1 != self.n else (f" + u{self.n}", f"m{self.n}")
        if self.nodes[root].op == "vector":
            mask = f"w{self.n}" if unit else "None"
            if not unit:
                return f"tl.load({place} + {start}).to(tl.float32)"
        cached = f', cache_modifier="{cache}"' if cache else ""
        return (
            f"tl.load({place}{row} + {start}{unit}, mask={mask}, other=0.0{cached}).to(tl.float32)"
        )

    def _fixed(self, root: int, start: int, width: int) -> str:
        """A value that is the same at all steps, loaded once."""
        name = f"v{root}_{start}_{width}_{self.n}"
        text = self._load(self.e.place(root), root, start, width)
        self.e.fixed[f"{name} = {text}"] = None
        return name

    # What depends on inputs alone is loaded and computed one step ahead ---------------------

    def _is_early(self, k: int) -> bool:
        known = self.e.is_early
        if (k, self.n) not in known:
            known[k, self.n] = self._told_by_inputs(k)
        return known[k, self.n]

    def _told_by_inputs(self, k: int) -> bool:
        root, _ = self.layout.root(k)
        node = self.nodes[root]
        if node.op == "input":
            return True
        if not node.elementwise or root != k or node.width not in (1, self.n):
            return False
        home = self.layout.home.get(root)
        if home is None or self.layout.segments[home].width != self.n:
            return False
        roots = [self.layout.root(a)[0] for a in node.args]
        return any(self.nodes[r].op == "input" or self._is_early(r) for r in roots) and all(
            self.nodes[r].op in ("input", "number", "vector", "context") or self._is_early(r)
            for r in roots
        )

    def _ahead(self, k: int) -> str:
        name = self._early(k)
        self.e.ahead.setdefault(name[1:])
        return f"e{name[1:]}"

    def _early(self, k: int) -> str:
        root, start = self.layout.root(k)
        node = self.nodes[k]
        if node.op == "number":
            return number(node["value"])
        if self.nodes[root].op in ("vector", "context"):
            return self._fixed(root, start, node.width)
        name = f"@{root}_{start}_{node.width}_{self.n}"
        if name in self.e.early:
            return name
        if self.nodes[root].op == "input":
            array = self.e.array("input", self.nodes[root]["name"])
            place = f"{array} + tt * B * {self.nodes[root].width}"
            text = self._load(place, root, start, node.width)
        else:
            text = expression(node, [self._early(a) for a in node.args], self.nodes)
        self.e.early[name] = f"{name} = {text}"
        return name
