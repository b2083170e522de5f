"""A segment over units as text: values are tiles [BB, U] of a program's units."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from metarnn.engines.triton import sums
from metarnn.engines.triton.layout import GATES, Segment
from metarnn.engines.triton.pack import packed, packed_for_all
from metarnn.engines.triton.program import SHORTEST, Block, Group, short
from metarnn.engines.triton.text import FLOAT, expression, indented, number, spread, store
from metarnn.graph.unrolled import Visit, unrolled

if TYPE_CHECKING:
    from metarnn.engines.triton.emit import Emitter


class Units:
    """A segment over units: values are tiles [BB, U] of this program's units, or of all units."""

    def __init__(self, emitter: Emitter, segment: Segment, number: int) -> None:
        self.e, self.segment, self.number = emitter, segment, number
        self.layout, self.nodes, self.n = emitter.layout, emitter.nodes, segment.width
        self.tag = f"{self.n}w" if segment.whole else f"{self.n}"  # ends names of sizes and indices
        emitter.width(self.n, segment.whole)
        self.out: list[str] = []
        self.groups = self._groups()
        # By the number of a group those that it is computed together with.
        self.together: dict[int, list[tuple[Units, Group]]] = {}
        self.done: set[int] = set()
        self.wanted: list[tuple[Group, int]] = []  # products of what is computed here

    def pair(self, other: Units) -> None:
        """Have products computed beside those of another segment that read the same rows."""
        for i, (group, argument) in enumerate(self.groups):
            same = [g for g, a in other.groups if a == argument and not (g.whole or g.at_hand)]
            if same and not group.at_hand and group.beside is None:
                paired = replace(group, beside=same[0].number)
                self.groups[i] = paired, argument
                self.e.groups[group.number] = paired
                shared = other.together.setdefault(same[0].number, [(other, same[0])])
                shared.append((self, paired))
                self.together[group.number] = shared

    def lines(self) -> tuple[list[str], list[str], list[str]]:
        """What need not wait for others, what they wait for, and what they need not be told of."""
        awaited = self.layout.awaited.get(self.number, set())
        late = [(g, a) for g, a in self.groups if self.layout.root(a)[0] in awaited]
        for group, argument in (each for each in self.groups if each not in late):
            self._product(group, argument)
        ahead, self.out = self.out, []
        for group, argument in late:
            self._product(group, argument)
        segment = self.segment
        if segment.whole:
            self.e.rows |= {k: self.value(k) for k in (*segment.products, *segment.rest)}
        nodes = (*segment.products, *segment.rest, *segment.loose)
        stores = [(k, place, waits) for k in nodes for place, waits in self.e.targets(k)]
        for wanted in self.wanted:
            self._hand_out(*wanted)
        for k in nodes:
            for place, turn in self.e.mail.told(k):
                self._tell(k, place, turn)
        for k, place, _ in (each for each in stores if each[2]):
            self._store(k, place, ".cg", f"not ({when})" if (when := self._later(k)) else "")
        urgent, self.out = self.out, []
        for k, place, waits in stores:
            if not waits:
                self._store(k, place, "")
            elif (when := self._later(k)) and not self.e.is_scratch(k, place):
                self._store(k, place, "", when)
        for k in nodes:
            for name in self.e.sums(k):
                self._add(k, name)
        return ahead, urgent, self.out

    def _store(self, k: int, place: str, cache: str, when: str = "") -> None:
        node, n = self.nodes[k], self.n
        if node.width == 1 != n:
            self.out.append(store(f"{place} + rb", self.value(k), 0, cache))
            return
        found = []
        for start, value in self._parts(k):
            address = f"{place} + rb * {node.width} + {start} + u{self.tag}"
            found.append(store(address, value, self.tag, cache, self._mine()))
        self.out += [f"if {when}:", *indented(found)] if when else found

    def _tell(self, k: int, place: str, turn: str) -> None:
        found = []
        for start, value in self._parts(k):
            row = f"rb * {self.nodes[k].width} + {start} + u{self.tag}"
            tile = spread(value, self.tag)
            found.append(f"tell({place} + {row}, {tile}, {self._mine()}, {turn})")
            if self.e.mail.has(k):
                self.e.mail.begin(k, row, self._mine(), self.tag)
        when = f"TOLD and not ({unread})" if (unread := self._unread(k)) else "TOLD"
        self.out += [f"if {when}:", *indented(found)]

    def _later(self, k: int) -> str:
        """The condition under which others need not wait for a node to be stored."""
        conditions = [self._unread(k), "TOLD" if self.layout.mail else ""]
        return " or ".join(filter(None, conditions))

    def _unread(self, k: int) -> str:
        """The condition under which others need not wait for a node, since all products of it are
        handed out. Empty: there is none."""
        layout, root = self.layout, self.layout.root
        groups = [group for group, argument in self.wanted if root(argument)[0] == k]
        handed = {block.product for group in groups for block in group.blocks}
        if k in self.layout.graph.next_states or any(
            use.user not in handed and not layout.in_registers(k, use) for use in layout.uses(k)
        ):
            return ""
        return " and ".join(f"PARTIAL{group.number}" for group in groups)

    def _hand_out(self, group: Group, argument: int) -> None:
        root, start = self.layout.root(argument)
        stop = start + self.nodes[argument].width
        parts = [spread(value, self.tag) for at, value in self._parts(root) if start <= at < stop]
        self.out += sums.handed_out(group, parts, self._partial(group))
        ready = sums.untold(group, self._partial(group))
        self.e.mail.before(f"if PARTIAL{group.number}:\n    {ready}")

    def _partial(self, group: Group) -> str:
        return self.e.array("partial", str(group.number))

    def _add(self, k: int, name: str) -> None:
        """Add a node to its sum over time."""
        array = self.e.array("sum", name)
        for start, value in self._parts(k):
            total = f"total{array[1:]}_{start}"
            self.e.before.append(f"{total} = tl.zeros((BB, U{self.tag}), tl.float32)")
            self.out.append(f"{total} += {value}")
            address = f"{array} + rb * {self.nodes[k].width} + {start} + u{self.tag}"
            self.e.after.append(store(address, total, self.tag, mask=self._mine()))

    def _mine(self) -> str:
        """Which numbers of a row this program stores."""
        return f"m{self.tag} & (me == 0)" if self.segment.whole else f"m{self.tag}"

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
                inner, at_hand = self.nodes[argument].width, self._at_hand(argument)
                number = len(self.e.groups)
                tiles = sums.tiles(self.layout, argument, self.number)
                whole = self.segment.whole
                root, start = self.layout.root(argument)
                told = 0 if at_hand else self.layout.told(root)
                of_all = told > 0 and -(-start // told) * told + told <= start + inner
                group = Group(number, self.n, inner, part, whole, at_hand)
                group = replace(group, tiles=tiles, told=told, of_all=of_all)
                self.e.groups.append(group)
                found.append((group, argument))
        return found

    def _argument(self, k: int) -> tuple[int, int]:
        """The rows that a product reads, and from where on.

        Of short rows all is read, though a product may need a few: its other weights are 0. So
        products of several parts of a row are one.
        """
        (argument,) = self.nodes[k].args
        root, start = self.layout.root(argument)
        few = self.nodes[root].op == "linear" and self.nodes[root].width <= SHORTEST
        all_read = (few or self._at_hand(root)) and root != argument
        return (root, start) if all_read else (argument, 0)

    def _at_hand(self, k: int) -> bool:
        """Whether all of a node's row is in registers."""
        home = self.layout.home.get(k)
        return home is not None and self.layout.segments[home].whole

    def _slice(self, k: int, start: int, offset: int) -> Block:
        node = self.nodes[k]
        (argument,) = node.args
        across = self.layout.graph.maps[node["map"]].inputs
        reads, transposed = self.nodes[argument].width, node.attributes.get("transposed", False)
        return Block(k, start, node["map"], node["start"], transposed, across, reads, offset)

    def _product(self, group: Group, argument: int) -> None:
        """A product, and those that are computed together with it, if that is not done yet."""
        if group.number in self.done:
            return
        if group.at_hand:
            self._weights(group)
            root, j = self.layout.root(argument)[0], group.number
            self.out.append(f"d{j} = dot({self._row(root)}, w_{j}, v_{j}, SPLIT)")
            self.out += self._settled(group)
            self._results(group, self.out)
            return
        together = self.together.get(group.number, [(self, group)])
        self._computed(group, argument, together)
        for units, each in together:
            units.done.add(each.number)

    def _computed(self, group: Group, argument: int, all: list[tuple[Units, Group]]) -> None:
        """Products of the same rows, read once, in pieces of one size."""
        j = group.number
        root, start = self.layout.root(argument)
        width = self.nodes[root].width
        rows = "" if self.nodes[root].op == "vector" else f"alike(rb * {width}, PARTS{j}) + "
        for units, each in all:
            units._weights(each)
        mask = f"alike(mb, PARTS{j}) & (k{j} < {group.inner})"
        # What is told is read at once: in pieces there would be none to multiply while one waits.
        chunk = f"tl.load(x{j} + k, mask={mask.replace(f'k{j} <', f'k{j} + k <')}, other=0.0, "
        chunk += 'cache_modifier=".cg").to(DOT)'
        turn, told, where = "0", "False", f"x{j} = {self.e.place(root)} + {start} + {rows}k{j}"
        if group.told:
            mail, turn = self.e.mail.read(root)
            mail = f"    x{j} = {mail} + {start} + {rows}k{j}"
            told, where = "TOLD", f"if TOLD:\n{mail}\nelse:\n    {where}"
        once, before, along, after = [], [], [], []
        for units, each in all:
            i, count = each.number, f"U{units.tag} * {each.padded}"
            once.append(f"    d{i} = dot(r{j}, w_{i}, v_{i}, SPLIT)")
            before.append(f"    d{i} = nothing(BB, {count}, PARTS{i})")
            along += [
                f"        w_{i} = tl.load(p{i} + k)",
                f"        v_{i} = tl.load(p{i} + l{i} + k) if SPLIT else w_{i}",
                f"        d{i} += dot(r{j}, w_{i}, v_{i}, SPLIT)",
            ]
            after.append(f"d{i} = together(d{i}, PARTS{i})")
        lines = [
            where,
            f"if HELD{j}:",
            f"    r{j}, fine = read(x{j}, {mask}, {turn}, fine, {told})",
            f"    r{j} = r{j}.to(DOT)",
            *once,
            "else:",
            *before,
            f"    for k in range(0, INNER{j}, CHUNK{j}):",
            f"        r{j} = {chunk}",
            *along,
            *after,
            *(line for units, each in all for line in units._settled(each)),
        ]
        if group.tiles:
            given = [f"d{g.number}, fine = {sums.collected(g, self._partial(g))}" for _, g in all]
            lines = [f"if PARTIAL{j}:", *indented(given), "else:", *indented(lines)]
        self.out += lines
        for units, each in all:
            units._results(each, self.out)

    def _weights(self, group: Group) -> None:
        """Where the weights of a product lie; those that are held are loaded once."""
        j = group.number
        lines = packed(group, self.e.array, self.tag)
        if group.tiles:
            partial = packed_for_all(group, self.e.array)
            lines = [f"if PARTIAL{j}:", *indented(partial), "else:", *indented(lines)]
        self.e.fixed |= dict.fromkeys([
            "\n".join(lines),
            f"if HELD{j}:",
            f"    w_{j} = tl.load(p{j})",
            f"    v_{j} = tl.load(p{j} + l{j}) if SPLIT else w_{j}",
        ])  # fmt: skip

    def _settled(self, group: Group) -> list[str]:
        """A result that is not split, brought to how all else lies in registers."""
        if group.padded > 1:
            return []
        j = group.number
        # Another place for each result: of two loads from one, Triton would keep the earlier.
        place = f"{self.e.array('pack', '')} + {j}"
        return [f"d{j} = settled(d{j}, {place}, fine, BB, U{self.tag})"]

    def _row(self, k: int) -> str:
        """A row that is in registers, as the argument of a product."""
        width = self.nodes[k].width
        tile = spread(self.e.rows[k], f"{width}w")
        inside = tile if short(width) == width else f"tl.where(w{width}w, {tile}, 0.0)"
        return f"{inside}.to(DOT)"

    def _results(self, group: Group, out: list[str]) -> None:
        """The blocks of a product, each with its bias."""
        names = self._split(f"d{group.number}", group.padded, out)
        for name, block in zip(names, group.blocks, strict=False):
            if self.nodes[block.product]["bias"]:
                bias = self.e.array("bias", self.nodes[block.product]["map"])
                term = f"b{block.product}_{block.start}"
                place = f"{bias} + {block.start} + u{self.tag}"
                load = f"tl.load({place}, mask=w{self.tag}, other=0.0)"
                self.e.fixed[f"{term} = {load}.to(tl.float32)"] = None
                out.append(f"{name} += {term}")
            self.e.known[block.product, block.start, self.n] = name

    def _split(self, name: str, count: int, out: list[str]) -> list[str]:
        """The names of the blocks of a product, in order."""
        if count == 1:
            return [name]
        even, odd = f"{name}e", f"{name}o"
        out.append(f"{even}, {odd} = split2({name}, BB, U{self.tag}, {count // 2})")
        evens, odds = (self._split(half, count // 2, out) for half in (even, odd))
        return [half for pair in zip(evens, odds, strict=True) for half in pair]

    def _block(self, k: int, start: int) -> str:
        return self.e.known[k, start, self.n]

    def value(self, k: int) -> str:
        """The name of a value, after the lines that compute or load it."""
        return unrolled(self._visit, k)

    def _visit(self, k: int) -> Visit[str]:
        node = self.nodes[k]
        root, start = self.layout.root(k)
        if node.op == "number":
            return number(node["value"])
        kind, width = self.nodes[root].op, node.width
        if kind in ("vector", "context"):
            return self.fixed(root, start, width)
        if self.e.early.has(self, k):
            return self.e.early.value(self, k)
        whole = start == 0 and width == self.nodes[root].width == self.n
        if kind == "state" and whole and self.nodes[root]["index"] in self.layout.carried:
            return f"s{self.nodes[root]['index']}"
        if (root, start, width) in self.e.known:
            name = self.e.known[root, start, width]
            if not name.startswith("z") or name.endswith(f"_{self.number}"):
                return name
        return (yield from self._compute(k, root, start))

    def _compute(self, k: int, root: int, start: int) -> Visit[str]:
        node = self.nodes[k]
        here = self.layout.home.get(root)
        same = here is not None and self.alike(here)
        if same and node.elementwise and (node.width in (1, self.n)):
            args: list[str] = []
            for a in node.args:
                args.append((yield a))
            name, text = f"y{k}", expression(node, args, self.nodes)
        else:  # from memory; the name ends with the segment, since another step may write between
            name = f"z{root}_{start}_{node.width}_{self.number}"
            text = self.load(self.e.place(root), root, start, node.width, ".cg")
        self.e.known[root, start, node.width] = name
        self.out.append(f"{name} = {text}")
        return name

    def load(self, place: str, root: int, start: int, width: int, cache: str = "") -> str:
        row = "" if self.nodes[root].op == "vector" else f" + rb * {self.nodes[root].width}"
        unit, mask = ("", "mb") if width == 1 != self.n else (f" + u{self.tag}", f"m{self.tag}")
        if self.nodes[root].op == "vector":
            mask = f"w{self.tag}" if unit else "None"
            if not unit:
                return f"tl.load({place} + {start}){FLOAT}"
        cached = f', cache_modifier="{cache}"' if cache else ""
        return f"tl.load({place}{row} + {start}{unit}, mask={mask}, other=0.0{cached}){FLOAT}"

    def fixed(self, root: int, start: int, width: int) -> str:
        """A value that is the same at all steps, loaded once."""
        name = f"v{root}_{start}_{width}_{self.tag}"
        text = self.load(self.e.place(root), root, start, width)
        self.e.fixed[f"{name} = {text}"] = None
        return name

    def alike(self, number: int) -> bool:
        """Whether a segment's values are tiles of the same units."""
        other = self.layout.segments[number]
        return (other.width, other.whole) == (self.n, self.segment.whole)
