"""Products of a segment over units: which are computed together, and what that takes."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count

from metarnn.engines.codegen import statements as s
from metarnn.engines.codegen.dataflow import Slice
from metarnn.engines.triton import statements as t
from metarnn.engines.triton.addresses import PerSequence, Tile
from metarnn.engines.triton.builder import Builder, Place, elements
from metarnn.engines.triton.layout import Layout
from metarnn.engines.triton.mailboxes import Mailboxes
from metarnn.engines.triton.program import TENSOR_CORE_MIN, ProductGroup, WeightBlock
from metarnn.engines.triton.segments import MAX_BLOCKS


class SegmentProducts:
    """The products of a segment, those with the same argument as one group."""

    def __init__(self, kernel: Builder, mailboxes: Mailboxes, number: int) -> None:
        self.kernel, self.mailboxes, self.layout = kernel, mailboxes, kernel.layout
        self.nodes, self.number = kernel.nodes, number
        self.segment = self.layout.segments[number]
        self.tile = self.segment.tile
        self.groups = self._groups()  # each with its argument
        # By the number of a group those that it is computed together with, the first leading.
        self.fused: dict[int, list[tuple[SegmentProducts, ProductGroup]]] = {}
        self.done: set[int] = set()

    def fuse(self, other: SegmentProducts) -> None:
        """Have products computed along with those of another segment that read the same rows."""
        for i, (group, argument) in enumerate(self.groups):
            same = [g for g, a in other.groups
                    if a == argument and not (g.replicated or g.in_registers)]  # fmt: skip
            if same and not group.in_registers and group.fused_with is None:
                fused = replace(group, fused_with=same[0].number)
                self.groups[i] = fused, argument
                self.kernel.groups[group.number] = fused
                members = other.fused.setdefault(same[0].number, [(other, same[0])])
                members.append((self, fused))
                self.fused[group.number] = members

    def compute(self, group: ProductGroup, argument: int) -> list[s.Statement]:
        """A group and those that it is fused with, if that is not done yet."""
        if group.number in self.done:
            return []
        root = self.layout.slice(argument).root
        if group.in_registers:
            self._pack(group)
            tile, packed = Tile(self.nodes[root].width, True), self.kernel.pointer("packed", "")
            product = t.Dot(group, self.kernel.replicated[root], tile, packed)
            return [product, *self._blocks(group)]
        members = self.fused.get(group.number, [(self, group)])
        for segment, each in members:
            segment._pack(each)
            segment.done.add(each.number)
        statements: list[s.Statement] = [self._products(members, argument)]
        for segment, each in members:
            statements += segment._blocks(each)
        return statements

    # Which products -----------------------------------------------------------------------

    def _groups(self) -> list[tuple[ProductGroup, int]]:
        blocks: dict[int, list[WeightBlock]] = {}
        for k in self.segment.products:
            argument, offset = self._argument(k)
            for start in range(0, self.nodes[k].width, self.tile.width):
                blocks.setdefault(argument, []).append(self._block(k, start, offset))
        groups: list[tuple[ProductGroup, int]] = []
        for argument, all_blocks in blocks.items():
            # More blocks would leave a program too few units of each.
            for first in range(0, len(all_blocks), MAX_BLOCKS):
                some = tuple(all_blocks[first : first + MAX_BLOCKS])
                group = self._group(len(self.kernel.groups), argument, some)
                self.kernel.groups.append(group)
                groups.append((group, argument))
        return groups

    def _group(self, number: int, argument: int, blocks: tuple[WeightBlock, ...]) -> ProductGroup:
        root, start, inner = self.layout.slice(argument)
        in_registers = self._in_registers(argument)
        published = 0 if in_registers else self.layout.published_width(root)
        return ProductGroup(
            number,
            self._name(blocks[0].map),
            self.tile.width,
            inner,
            blocks,
            self.tile.replicated,
            in_registers,
            partial_tiles=partial_tiles(self.layout, argument, self.number),
            published_width=published,
            reads_all_units=published > 0
            and -(-start // published) * published + published <= start + inner,
        )

    def _name(self, map: str) -> str:
        """The name of a map, told apart from other groups' by a number."""
        stem = re.sub(r"\W", "_", self.kernel.names.map(map), flags=re.ASCII).lower()
        taken = {group.name for group in self.kernel.groups}
        names = (stem if n == 1 else f"{stem}_{n}" for n in count(1))
        return next(name for name in names if name not in taken)

    def _argument(self, k: int) -> tuple[int, int]:
        """The rows that a product reads, and from where on.

        Of short rows all is read, though a product may need a part: its other weights are 0. So
        products of several parts of a row are one.
        """
        (argument,) = self.nodes[k].args
        root, start, _ = self.layout.slice(argument)
        short = self.nodes[root].op == "linear" and self.nodes[root].width <= TENSOR_CORE_MIN
        read_all = (short or self._in_registers(root)) and root != argument
        return (root, start) if read_all else (argument, 0)

    def _in_registers(self, k: int) -> bool:
        """Whether all of a node's row is in registers."""
        home = self.layout.segment_of.get(k)
        return home is not None and self.layout.segments[home].replicated

    def _block(self, k: int, start: int, offset: int) -> WeightBlock:
        node = self.nodes[k]
        columns = self.layout.graph.maps[node["map"]].inputs
        reads, transposed = self.nodes[node.args[0]].width, node.attributes.get("transposed", False)
        return WeightBlock(k, start, node["map"], node["start"], transposed, columns, reads, offset)

    # What they take -----------------------------------------------------------------------

    def _pack(self, group: ProductGroup) -> None:
        """Pack the weights of a product, and load those that stay on the chip."""
        maps = [group.blocks[begin].map for begin, _ in group.runs]
        weights = tuple(self.kernel.pointer("weight", name) for name in maps)
        packed = self.kernel.pointer("packed", "")
        self.kernel.once[t.PackWeights(group, weights, packed)] = None

    def _products(
        self, members: list[tuple[SegmentProducts, ProductGroup]], argument: int
    ) -> t.Products:
        lead = members[0][1]
        root, start, _ = self.layout.slice(argument)
        width, shared = self.nodes[root].width, self.nodes[root].op == "vector"
        where = width, start, PerSequence(), shared
        rows, mailbox = elements(self.kernel.first_row(root), *where), None
        if lead.published_width:
            mailbox = elements(self.mailboxes.place(root), *where)
        groups = tuple(group for _, group in members)
        partial = groups if lead.partial_tiles else ()
        arrays = tuple(self.kernel.pointer("partial_sums", g.name) for g in partial)
        return t.Products(groups, rows, mailbox, arrays, self.kernel.pointer("packed", ""))

    def _blocks(self, group: ProductGroup) -> list[s.Statement]:
        """The blocks of a result, each with its bias."""
        statements: list[s.Statement] = []
        blocks = range(group.padded_blocks)
        names = self._split(group, f"acc_{group.name}", blocks, statements)
        for i, block in enumerate(group.blocks):
            value = s.Value(names[i])
            if self.nodes[block.product]["bias"]:
                bias = self._bias(block)
                statements.append(s.Accumulate(value, bias))
            self.kernel.registers[Slice(block.product, block.start, self.tile.width)] = value
        return statements

    def _bias(self, block: WeightBlock) -> s.Value:
        array = self.kernel.pointer("bias", block.map)
        name = self.kernel.names.unique(f"{array.removesuffix('_ptr')}_{block.start}")
        bias = s.Value(name, s.Axes.UNITS)
        address = elements(Place(array, array), 0, block.start, self.tile, shared=True)
        self.kernel.once[s.Load(bias, address)] = None
        return bias

    def _split(
        self, group: ProductGroup, name: str, blocks: range, statements: list[s.Statement]
    ) -> dict[int, str]:
        """The names of some blocks, once a result of that name is split into them."""
        if len(blocks) == 1:
            return {blocks[0]: name}
        halves = blocks[::2], blocks[1::2]
        even, odd = (self._part_name(group, half) for half in halves)
        statements.append(t.SplitBlocks(even, odd, name, self.tile, len(halves[0])))
        names = self._split(group, even, halves[0], statements)
        return names | self._split(group, odd, halves[1], statements)

    def _part_name(self, group: ProductGroup, blocks: range) -> str:
        if len(blocks) > 1 or blocks[0] >= len(group.blocks):
            return self.kernel.names.unique(f"blocks_{group.name}_{blocks[0]}")
        block = group.blocks[blocks[0]]
        product = self.kernel.names.product(block.product)
        return self.kernel.names.unique(f"{product}_{block.start // group.width}")


def partial_tiles(layout: Layout, argument: int, number: int) -> int:
    """In how many tiles of units a segment before that number has an argument; 0: in none.

    Each program may then multiply the part that it has itself, for all programs. That takes less
    than to read what all have computed where the argument is longer than the result, as it is in a
    backward pass through gates.
    """
    root, start, width = layout.slice(argument)
    home = layout.segment_of.get(root, number)
    segment, node = layout.segments[home], layout.nodes[root]
    n = segment.width
    if home >= number or not n or segment.replicated or width > MAX_BLOCKS * n:
        return 0
    parts = node.args if node.op == "join" else [root] if node.elementwise else []
    alike = bool(parts) and all(layout.nodes[k].width == n for k in parts)
    return width // n if alike and start % n == width % n == 0 else 0
