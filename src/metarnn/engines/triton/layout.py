"""Who computes which values of a step, where they are kept, and who has to wait for whom.

Programs of a group share a part of the batch. In a segment over *units* each program computes its
slice of rows of one width, all products first; in a segment over *rows* each program takes whole
sequences. What another program (or another way of sharing) reads goes through memory, and a
barrier stands before the segment that reads it; all else stays in registers.

A segment of short rows that only products read is computed *whole* by each program: that takes less
time than to wait for others to have computed their part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from metarnn.graph import Graph, stages

SUMS = ("dvector.", "dcontext.")  # outputs that are summed over time
GATES = 8  # the most that a product is cut into
# The longest rows that each program computes whole. By the model in `tiling`, 32 numbers, each made
# of 512, take it 0.7 µs, and to wait for others takes 1.7.
SHORT = 32


@dataclass(frozen=True)
class Segment:
    """A part of a step without a barrier in it. `width` is 0 for a segment over rows."""

    width: int
    products: tuple[int, ...] = ()
    rest: tuple[int, ...] = ()
    loose: tuple[int, ...] = ()  # results that nothing computes: sources and slices
    whole: bool = False  # whether each program computes all units of it


@dataclass(frozen=True)
class Use:
    """Somebody reads numbers [start, start + width) of a node."""

    user: int
    start: int
    width: int


class Layout:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.nodes = graph, graph.nodes
        self._users: list[list[int]] = [[] for _ in self.nodes]
        for user, node in enumerate(self.nodes):
            for a in dict.fromkeys(node.args):
                self._users[a].append(user)
        self.stores = self._results()
        segments = self._segments()
        self.home = {
            k: number
            for number, segment in enumerate(segments)
            for k in (*segment.products, *segment.rest, *segment.loose)
        }
        self.segments = [replace(s, whole=self._whole(s, segments)) for s in segments]
        self.carried = {i for i in range(len(graph.next_states)) if self._carried(i)}
        self.memory = {
            k for k, node in enumerate(self.nodes)
            if not node.source and node.op != "slice" and self._needs_memory(k)
        }  # fmt: skip
        self.awaited = self._awaited()
        self.barriers = set(self.awaited)
        self.mail = self._mail()

    # What is asked of nodes ---------------------------------------------------------------

    def root(self, k: int) -> tuple[int, int]:
        """The node that a slice (of a slice) is cut from, and where the cut begins."""
        start = 0
        while self.nodes[k].op == "slice":
            start += self.nodes[k]["start"]
            k = self.nodes[k].args[0]
        return k, start

    def uses(self, k: int) -> Iterator[Use]:
        """Who reads a node, through slices or not."""
        todo = [(user, 0, self.nodes[k].width) for user in self._users[k]]
        while todo:
            user, start, width = todo.pop()
            node = self.nodes[user]
            if node.op == "slice":
                todo += [(u, start + node["start"], node.width) for u in self._users[user]]
                if user in self.stores:
                    yield Use(user, start + node["start"], node.width)
            else:
                yield Use(user, start, width)

    def state_node(self, index: int) -> int | None:
        """The source of a state; none if nothing reads it."""
        for k, node in enumerate(self.nodes):
            if node.op == "state" and node["index"] == index:
                return k
        return None

    def in_registers(self, k: int, use: Use) -> bool:
        """Whether a user finds a node's numbers in its own registers."""
        node, user = self.nodes[k], self.nodes[use.user]
        here, there = self.segments[self._at(k)], self.segments[self._at(use.user)]
        if here.whole and user.op == "linear":
            return True
        if user.op == "linear" or node.op == "join":
            return False
        if (here.width, here.whole) != (there.width, there.whole):
            return False
        if not here.width:  # rows: nothing in registers outlives the segment, or is cut
            whole = use.start == 0 and use.width == node.width
            return here is there and whole and user.op not in ("repeat", "fold")
        if node.op == "linear":
            return use.width == here.width and use.start % here.width == 0
        return use.start == 0 and use.width == node.width

    # How it is worked out -----------------------------------------------------------------

    def _at(self, k: int) -> int:
        node = self.nodes[k]
        return self.home[self.graph.next_states[node["index"]] if node.op == "state" else k]

    def _results(self) -> dict[int, list[tuple[str, str]]]:
        """For each result of the step the arrays it goes to."""
        found: dict[int, list[tuple[str, str]]] = {}
        for index, k in enumerate(self.graph.next_states):
            found.setdefault(k, []).append(("state", str(index)))
        self.aliases: dict[str, str] = {}
        first: dict[tuple[int, str], str] = {}
        # What is put out at every step need not be summed up in the loop, too. A sum over time is
        # not yet that over sequences.
        for name in sorted(self.graph.outputs, key=lambda name: name.startswith(SUMS)):
            k = self.graph.outputs[name]
            kind = name.partition(".")[0] if name.startswith(SUMS) else ""
            same = first.get((k, "")) or first.setdefault((k, kind), name)
            if same != name:
                self.aliases[name] = same
            else:
                found.setdefault(k, []).append(("sum" if kind else "output", name))
        return found

    def _segments(self) -> list[Segment]:
        found: list[Segment] = []
        order = stages(self.graph)
        level = {k: i for i, stage in enumerate(order) for k in (*stage.products, *stage.rest)}
        waiting: tuple[int, ...] = ()
        for i, stage in enumerate(order):
            rest = tuple(k for k in stage.rest if self.nodes[k].op != "slice")
            products = (*waiting, *stage.products)
            waiting = ()
            if not rest and not products:
                continue
            n = self._common_width(products, rest)
            waiting = tuple(k for k in products if self._waits(k, n, i, level))
            products = tuple(k for k in products if k not in waiting)
            if rest or products:
                found += self._of_stage(products, rest)
        loose = [k for k in self.stores if self.nodes[k].source or self.nodes[k].op == "slice"]
        for width in dict.fromkeys(self.nodes[k].width for k in loose):
            same = (k for k in loose if self.nodes[k].width == width)
            found.append(Segment(width, loose=tuple(same)))
        return found

    def _whole(self, segment: Segment, segments: list[Segment]) -> bool:
        """Whether each program computes a segment whole: its rows are short, it needs nothing that
        is shared out but for products, and elsewhere only products read it."""
        n, nodes = segment.width, self.nodes
        mine = {*segment.products, *segment.rest}
        if not 0 < n <= SHORT or not segment.products or mine & {*self.graph.next_states}:
            return False
        if any(nodes[k].width != n or nodes[k].op == "join" for k in mine):
            return False
        read = {self.root(a)[0] for k in segment.rest for a in nodes[k].args} - mine
        if any(not nodes[k].source or nodes[k].op == "state" for k in read):
            return False
        outside = [use for k in mine for use in self.uses(k) if use.user not in mine]
        return bool(outside) and all(
            nodes[use.user].op == "linear" and segments[self.home[use.user]].width > n
            for use in outside
        )

    def _waits(self, k: int, n: int, now: int, level: dict[int, int]) -> bool:
        """Whether a product is left to a later stage, which reads it in rows not of this width."""
        uses = [use for use in self.uses(k) if use.user != k]
        due = [level[use.user] - (self.nodes[use.user].op == "linear") for use in uses]
        return min(due, default=now) > now and any(use.width != n for use in uses)

    def _of_stage(self, products: tuple[int, ...], rest: tuple[int, ...]) -> list[Segment]:
        """Products with all that follows; else those that a later stage reads apart; else a segment
        for each width; else rows."""
        if n := self._common_width(products, rest):
            return [Segment(n, products, rest)]
        read = {self.root(a)[0] for k in rest for a in self.nodes[k].args}
        used = tuple(k for k in products if k in read)
        later = self._by_width(tuple(k for k in products if k not in read))
        if rest and (n := self._common_width(used, rest)):
            return [*later, Segment(n, used, rest)]
        if rest and (each := self._each_width(used, rest)):
            return [*later, *each]
        return [*self._by_width(products), *([Segment(0, (), rest)] if rest else [])]

    def _each_width(self, products: tuple[int, ...], rest: tuple[int, ...]) -> list[Segment]:
        """A segment for each width of the rest, if none needs another's."""
        found = []
        for width in dict.fromkeys(self.nodes[k].width for k in rest):
            same = tuple(k for k in rest if self.nodes[k].width == width)
            read = {self.root(a)[0] for k in same for a in self.nodes[k].args}
            mine = tuple(k for k in products if k in read)
            if self._common_width(mine, same) != width or read & ({*rest} - {*same}):
                return []
            found.append(Segment(width, mine, same))
        done = [k for segment in found for k in segment.products]
        return found if sorted(done) == sorted(products) else []

    def _by_width(self, products: tuple[int, ...]) -> list[Segment]:
        widths = dict.fromkeys(self.nodes[k].width for k in products)
        same = {n: tuple(k for k in products if self.nodes[k].width == n) for n in widths}
        return [Segment(n, each) for n, each in same.items()]

    def _common_width(self, products: tuple[int, ...], rest: tuple[int, ...]) -> int:
        """The width of a stage's rows if all have the same and none needs another's units."""
        nodes = self.nodes
        widths = {nodes[k].width for k in rest if nodes[k].elementwise and nodes[k].width > 1}
        widths = widths or {nodes[a].width for k in rest if nodes[k].op == "join"
                            for a in nodes[k].args}  # fmt: skip
        widths = widths or {nodes[k].width for k in products}
        n = widths.pop() if len(widths) == 1 else 0
        # A product of a few gates is cut into these. One that is far wider is not made of gates:
        # cut up, it would be left to the few programs that have units of so small a width.
        if not n or any(nodes[k].width % n or nodes[k].width > GATES * n for k in products):
            return 0
        here = {*products, *rest}
        return n if all(self._fits(k, n, here) for k in rest) else 0

    def _fits(self, k: int, n: int, here: set[int]) -> bool:
        node = self.nodes[k]
        if not node.elementwise and node.op != "join":
            return False
        if node.width == 1 and n > 1 and k in self.stores:
            return False
        for a in node.args:
            width = self.nodes[a].width
            if width != n and (width != 1 or node.op == "join"):
                return False
            root, start = self.root(a)
            if root not in here or self.nodes[root].source:
                continue
            if self.nodes[root].op == "join" or (width == 1 < self.nodes[root].width):
                return False
            if start and (self.nodes[root].op != "linear" or start % n):
                return False
        return not (node.width == 1 < n) or all(
            self.nodes[use.user].elementwise for use in self.uses(k)
        )

    def _carried(self, index: int) -> bool:
        """Whether a state is handed from step to step in registers."""
        k = self.state_node(index)
        width = self.graph.states[index]
        segment = self.segments[self.home[self.graph.next_states[index]]]
        if segment.width != width:
            return False
        return k is None or all(
            self.nodes[use.user].op == "linear" or self.in_registers(k, use) for use in self.uses(k)
        )

    def state_in_memory(self, index: int) -> bool:
        """Whether somebody reads a state from memory."""
        if index not in self.carried:
            return True
        k = self.state_node(index)
        return k is not None and any(self.nodes[use.user].op == "linear" for use in self.uses(k))

    def only_products_read(self, k: int) -> bool:
        return all(
            self.nodes[use.user].op == "linear" or self.in_registers(k, use) for use in self.uses(k)
        )

    def _needs_memory(self, k: int) -> bool:
        return any(not self.in_registers(k, use) for use in self.uses(k))

    def _awaited(self) -> dict[int, set[int]]:
        """The segments before which all programs of a group meet, and what they wait for there."""
        writes: list[set[int]] = [set() for _ in self.segments]
        reads: list[set[int]] = [set() for _ in self.segments]
        for k, node in enumerate(self.nodes):
            state = node.op == "state"
            if not (self.state_in_memory(node["index"]) if state else k in self.memory):
                continue
            writes[self._at(k)].add(k)
            for use in self.uses(k):
                if self._foreign(k, use):
                    reads[self.home[use.user]].add(k)
        found: dict[int, set[int]] = {}
        dirty: set[int] = set()
        for _ in range(2):  # twice: what a step leaves behind is read by the next one
            for number in range(len(self.segments)):
                if dirty & reads[number]:
                    found.setdefault(number, set()).update(dirty)
                    dirty = set()
                dirty |= writes[number]
        return found

    def _mail(self) -> set[int]:
        """What programs may tell one another number by number, without a barrier: all that any of
        them reads of others, if that is only for products. Empty: not everything is."""
        if len(self.carried) < len(self.graph.states) or any(not s.width for s in self.segments):
            return set()
        states = {
            k for k, node in enumerate(self.nodes)
            if node.op == "state" and self.state_in_memory(node["index"])
        }  # fmt: skip
        if any(not self.only_products_read(k) or self._shared_out(k) for k in self.memory):
            return set()
        return states | self.memory

    def told(self, k: int) -> int:
        """The width of the rows of units in which a node is computed, if it is told; else 0."""
        return self.segments[self._at(k)].width if k in self.mail else 0

    def _shared_out(self, k: int) -> bool:
        """Whether several programs write the same number, one a sequence."""
        return self.nodes[k].width == 1 != self.segments[self._at(k)].width

    def _foreign(self, k: int, use: Use) -> bool:
        """Whether a user may read from memory what another program has written there."""
        here, there = self.segments[self._at(k)], self.segments[self._at(use.user)]
        if self.nodes[use.user].op == "linear" or here.width != there.width:
            return True
        return bool(here.width) and not (use.start == 0 and use.width == self.nodes[k].width)
