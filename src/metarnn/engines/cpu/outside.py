"""Products of whole matrices that a program computes before its loop over time, or after it.

Products of all steps at once: the drives W x + b that the loop reads, and the gradients of all
weights and of x from the adjoints that it leaves.
"""

from __future__ import annotations

from collections.abc import Mapping

from metarnn.cells import Map
from metarnn.engines.cpu.layout import Layout
from metarnn.engines.plan import Key, LoopPlan

LONGEST = 1024  # rows of B that are packed at once where that is all of them; if there are more,
BLOCK = 512  # so many at a time: C is read and written again for each block
CHUNK = 96  # rows of A that stay in the cache while the tiles of B pass
SHORT = 256  # numbers that are summed one after the other: sums of sums err less
SMALL = 1 << 16  # numbers of B that each thread packs for itself: so nobody waits
SIZES = "".join(
    f"#define {name} {value}L\n"
    for name, value in (
        ("LONGEST", LONGEST),
        ("BLOCK", BLOCK),
        ("CHUNK", CHUNK),
        ("SHORT", SHORT),
        ("SMALL", SMALL),
    )
)
WIDEST = 64  # columns of a tile, with the widest vectors


class Matrices:
    """C of products, in the order in which they are asked for; see `dense` in prelude.c."""

    own = CHUNK * LONGEST + SMALL  # numbers that a thread has for itself

    def __init__(self, layout: Layout, maps: Mapping[str, Map]) -> None:
        self.layout, self.maps = layout, maps
        self.lines: list[str] = []
        self.shared = 0  # numbers of B, packed, at most
        self.work = 0  # multiply-adds for a step and sequence
        self.zeroed: set[Key] = set()  # gradients of which only parts are written
        self.written: set[Key] = set()

    def linear(self, x: str, key: Key, start: int, stop: int, bias: bool, y: str) -> None:
        """y = x Wᵀ + b for columns of W."""
        (N, width), K = self._shape(key), stop - start
        w = f"{self.layout.array(*key)} + {start}"
        b = self.layout.array("bias", key[1]) if bias else "0"
        self._add(f"{x}, {w}, {b}, {y}, T * B, {N}, {K}, {K}, 1, {width}, 0, {N}, 0", N, K, N * K)

    def pull(self, d: str, key: Key, start: int, stop: int, dx: str, add: bool) -> None:
        """dx = d W, or dx += d W."""
        (N, width), K = self._shape(key), stop - start
        w = f"{self.layout.array(*key)} + {start}"
        sizes = f"T * B, {K}, {N}, {N}, 1, {width}, 1, {K}, {int(add)}"
        self._add(f"{d}, {w}, 0, {dx}, {sizes}", K, N, N * K)

    def outer(self, d: str, x: str, key: Key, start: int, stop: int) -> None:
        """The gradient of columns of W: dᵀ x."""
        (N, width), K = self._shape(key), stop - start
        add = self._adds(key, width == K)
        dw = self._gradient(key)
        to = f"({dw} ? {dw} + {start} : 0)"
        sizes = f"{N}, {K}, T * B, 1, {N}, {K}, 1, {width}, {add}"
        self._add(f"{d}, {x}, 0, {to}, {sizes}", K, LONGEST, N * K)

    def total(self, d: str, key: Key) -> None:
        """The gradient of a bias: the sum of d over steps and sequences."""
        N, add = self._shape(key)[0], self._adds(key, True)
        sizes = f"1, {N}, T * B, 0, 0, {N}, 1, {N}, {add}"
        self._add(f"0, {d}, 0, {self._gradient(key)}, {sizes}", 0, 0, N)

    def _add(self, numbers: str, N: int, K: int, work: int) -> None:
        room = f"{self.layout.array('shared', 'packed')}, {self.layout.array('own', 'rows')}"
        self.lines.append(
            f"J->products->matrices(J, me, &round, &(const dense){{{numbers}}}, {room});"
        )
        columns = -(-N // WIDEST) * WIDEST
        self.shared = max(self.shared, (min(K, LONGEST) + 1) * columns)
        self.work += work

    def _adds(self, key: Key, whole: bool) -> int:
        """Whether a part of a gradient is added to what is there."""
        if key not in self.written and not whole:
            self.zeroed.add(key)
        add = key in self.written or not whole
        self.written.add(key)
        return int(add)

    def _gradient(self, key: Key) -> str:
        return self.layout.array("gradient", f"{key[0]}.{key[1]}")

    def _shape(self, key: Key) -> tuple[int, int]:
        each = self.maps[key[1]]
        return each.outputs, each.inputs


def nothing(layout: Layout) -> Matrices:
    return Matrices(layout, {})


def drives(plan: LoopPlan, layout: Layout) -> Matrices:
    """What a loop reads of x."""
    made = Matrices(layout, plan.parts.full.maps)
    for key, node in plan.projections:
        weight = ("weight", node["map"])
        x, y = layout.array("input", "x"), layout.array(*key)
        made.linear(x, weight, node["start"], node["stop"], node["bias"], y)
    return made


def gradients(plan: LoopPlan, layout: Layout) -> Matrices:
    """The gradients of all maps and of x, from what a reverse loop puts out."""
    made = Matrices(layout, plan.parts.full.maps)
    outputs = layout.graph.outputs

    def found(name: str) -> str:
        return layout.array("output", layout.aliases.get(name, name))

    for i, product in enumerate(plan.products):
        if f"dproduct.{i}" in outputs:
            d = found(f"dproduct.{i}")
            if product.state is None:
                argument = found(f"argument.{i}")
            else:  # the steps before the last are the first of its history
                argument = layout.array("input", f"before.{product.state}")
            made.outer(d, argument, ("weight", product.map), product.start, product.stop)
            if product.bias:
                made.total(d, ("bias", product.map))
    x, dx = layout.array("input", "x"), layout.array("gradient", "input.x")
    added = "dinput.x" in outputs  # by the loop, in the same array
    for (_, name), node in plan.projections:
        if f"dinput.{name}" in outputs:
            d, weight = found(f"dinput.{name}"), ("weight", node["map"])
            made.pull(d, weight, node["start"], node["stop"], dx, added)
            made.outer(d, x, weight, node["start"], node["stop"])
            if node["bias"]:
                made.total(d, ("bias", node["map"]))
            added = True
            made.written.add(("input", "x"))
    return made
