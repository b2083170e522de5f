"""A segment over rows as text: each program takes whole sequences, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from metarnn.engines.triton.layout import Segment
from metarnn.engines.triton.program import power
from metarnn.engines.triton.text import element, expression, indented, lanes, number
from metarnn.graph import Node
from metarnn.graph.ops import OPS

if TYPE_CHECKING:
    from metarnn.engines.triton.emit import Emitter


class Rows:
    """A segment over rows: each program takes whole sequences, one after the other."""

    def __init__(self, emitter: Emitter, segment: Segment, number: int) -> None:
        self.e, self.segment, self.number = emitter, segment, number
        self.layout, self.nodes = emitter.layout, emitter.nodes
        self.known: dict[tuple[int, int, int], str] = {}
        self.out: list[str] = []
        self.dirty = False

    def lines(self) -> tuple[list[str], list[str], list[str]]:
        for k in self.segment.rest:
            self._result(k)
        first = "first + group * SEQUENCES"
        body = indented(["r = row + zero", *self.out])
        return [], [f"for row in range({first} + me, {first} + rows, P):", *body], []

    def _result(self, k: int) -> None:
        places = [place for place, _ in self.e.targets(k)]
        for start, part in self._parts(k):
            self.value(part)
            for place in places:
                self._store(f"{place} + r * {self.nodes[k].width} + {start}", part)
            for name in self.e.sums(k):
                place = f"{self.e.array('sum', name)} + r * {self.nodes[k].width} + {start}"
                index, mask = lanes(self.nodes[part].width)
                old = f"tl.load({place}{index}{mask})"
                self.out.append(f"tl.store({place}{index}, {old} + {self.value(part)}{mask})")
        self.dirty = self.dirty or bool(places)

    def _parts(self, k: int) -> list[tuple[int, int]]:
        """What a row is joined of: (where it begins, the node); most are one piece."""
        node = self.nodes[k]
        if node.op != "join":
            return [(0, k)]
        widths = [self.nodes[a].width for a in node.args]
        return [(sum(widths[:i]), a) for i, a in enumerate(node.args)]

    def _store(self, place: str, k: int) -> None:
        index, mask = lanes(self.nodes[k].width)
        value = self.value(k)
        shape = "()" if not index else f"({power(self.nodes[k].width)},)"
        cast = f"(tl.zeros({shape}, tl.float32) + {value}).to({element(place)})"
        self.out.append(f'tl.store({place}{index}, {cast}{mask}, cache_modifier=".cg")')

    def value(self, k: int) -> str:
        node = self.nodes[k]
        if node.op == "number":
            return number(node["value"])
        root, start = self.layout.root(k)
        key = (root, start, node.width)
        if key in self.known:
            return self.known[key]
        if k in self.segment.rest and node.op not in ("slice", "join"):
            name, text = f"r{k}", self._compute(k)
        else:
            name = f"z{root}_{start}_{node.width}_row{self.number}"
            text = self._load(root, start, node.width)
        self.known[key] = name
        self.out += [*text.split("\n")[:-1], f"{name} = {text.splitlines()[-1]}"]
        return name

    def _meet(self) -> None:
        """Other threads of this program may have written what is read next."""
        if self.dirty:
            self.out.append("tl.debug_barrier()")
            self.dirty = False

    def _load(self, root: int, start: int, width: int) -> str:
        if root in self.segment.rest:
            self._meet()
        node = self.nodes[root]
        row = "" if node.op == "vector" else f" + r * {node.width}"
        index, mask = lanes(width)
        other = ", other=0.0" if mask else ""
        return (
            f"tl.load({self.e.place(root)}{row} + {start}{index}{mask}{other}, "
            'cache_modifier=".cg").to(tl.float32)'
        )

    def _compute(self, k: int) -> str:
        node = self.nodes[k]
        if node.elementwise:
            return expression(node, [self.value(a) for a in node.args], self.nodes)
        (argument,) = node.args
        width = self.nodes[argument].width
        inside = "" if power(width) == width else f"tl.arange(0, {power(width)}) < {width}"
        if node.op in ("repeat", "fold"):
            return self._rearranged(node, argument)
        x = self.value(argument)
        if width == 1:  # a row of one value is a scalar here
            return _alone(node, x)

        def among(text: str, other: str) -> str:
            return f"tl.where({inside}, {text}, {other})" if inside else f"({text})"

        x = f"({x} + tl.zeros(({power(width)},), tl.float32))"  # it may be one number for all
        zeroed = among(x, "0.0")
        return OPS[node.op].triton.format(
            n=width,
            zeroed=zeroed,
            lowest=among(x, 'float("-inf")'),
            centred=among(f"{x} - tl.sum({zeroed}, 0) / {width}", "0.0"),
            h=f"h{k}",
            v=f"v{k}",
            **{name: repr(value) for name, value in node.attributes.items()},
        )

    def _rearranged(self, node: Node, argument: int) -> str:
        """Numbers of a row elsewhere in it: through memory."""
        root, start = self.layout.root(argument)
        if root in self.segment.rest:
            self._meet()
        width = self.nodes[argument].width
        times, out = node["times"], node.width
        row = "" if self.nodes[root].op == "vector" else f" + r * {self.nodes[root].width}"
        base = f"{self.e.place(root)}{row} + {start}"
        if node.op == "repeat":
            i = f"tl.arange(0, {power(out)})"
            mask = f"{i} < {out}"
            load = f"tl.load({base} + {i} // {times}, mask={mask}, other=0.0"
            return f'{load}, cache_modifier=".cg").to(tl.float32)'
        i = f"tl.arange(0, {power(out)})[:, None]"
        j = f"tl.arange(0, {power(times)})[None, :]"
        mask = f"({i} * {times} + {j} < {width}) & ({j} < {times})"
        load = f"tl.load({base} + {i} * {times} + {j}, mask={mask}, other=0.0"
        total = f'tl.sum({load}, cache_modifier=".cg").to(tl.float32), 1)'
        return f"tl.sum({total}, 0)" if out == 1 else total


def _alone(node: Node, x: str) -> str:
    """An operation on a row of one value x: a constant unless that is NaN, or x itself."""
    if node.op not in ("softmax", "norm", "rstd"):
        return f"{x} + 0"
    value = float(OPS[node.op].compute(torch.zeros(1), **node.attributes))
    return f"0 * {x} + {number(value)}"
