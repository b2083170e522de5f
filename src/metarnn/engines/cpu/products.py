"""Matrix products of a stage: columns of weights in tiles, products of the same row together."""

from __future__ import annotations

from dataclasses import dataclass

from metarnn.engines.cpu.layout import Layout

VECTORS = 4  # of columns in a call: with 6 rows of x, 24 sums stay in registers (AVX-512)


@dataclass(frozen=True)
class Columns:
    """A block of columns of a product: a gate."""

    product: int
    start: int


@dataclass(frozen=True)
class Group:
    """Products of one row by blocks of `width` columns, computed tile by tile.

    A tile is `vectors` vectors of units, and the columns of all blocks that belong to them. It is
    worked off in calls, each a list of (block, vector) of at most VECTORS.
    """

    name: str
    argument: int
    inputs: int
    width: int
    vectors: int
    blocks: tuple[Columns, ...]

    @property
    def calls(self) -> list[list[tuple[int, int]]]:
        every = [(c, u) for c in range(len(self.blocks)) for u in range(self.vectors)]
        return [every[i : i + VECTORS] for i in range(0, len(every), VECTORS)]

    @property
    def tile(self) -> str:
        return f"(VL * {self.vectors})"

    @property
    def numbers(self) -> int:
        """Packed weights of a tile, in vectors: for each column the bias, then the inputs."""
        return len(self.blocks) * self.vectors * (self.inputs + 1)


def each_tile(tile: str, width: int, body: list[str]) -> list[str]:
    """C that does the body for each of a thread's tiles, of which unit `first` is the first.

    Every other step (and of single steps every other call) goes through them backwards: so it
    begins with the weights that the last one left in the cache.
    """
    return [
        f"{{ const long start = seat * {tile}, every = crew * {tile};",
        f"const long tiles = ({width} - start + every - 1) / every;",
        "for (long i = 0; i < tiles; i++) {",
        "const long first = start + ((s + J->turn) % 2 ? tiles - 1 - i : i) * every;",
        *body,
        "} }",
    ]


class Products:
    """Emits products; `packed` says whether weights are brought into the order of their use."""

    def __init__(self, layout: Layout, packed: bool) -> None:
        self.layout, self.nodes, self.is_packed = layout, layout.nodes, packed
        self.packed: dict[str, tuple[int, int, int]] = {}  # width, vectors, numbers of a group

    def groups(self, stage: int, products: tuple[int, ...], width: int) -> list[Group]:
        """The groups of a stage whose rows are all of one width; 0 if they are not."""
        found: dict[tuple[int, int], list[Columns]] = {}
        for k in products:
            block = width or self.nodes[k].width
            columns = found.setdefault((self.nodes[k].args[0], block), [])
            columns += [Columns(k, start) for start in range(0, self.nodes[k].width, block)]
        most = max(map(len, found.values()), default=1)
        groups = []
        for index, ((argument, block), columns) in enumerate(found.items()):
            inputs, vectors = self.nodes[argument].width, max(1, VECTORS // most)
            name = f"{stage}_{index}"
            groups.append(Group(name, argument, inputs, block, vectors, tuple(columns)))
            if self.is_packed:
                self._pack(groups[-1])
        return groups

    def _pack(self, group: Group) -> None:
        self.packed[group.name] = (group.width, group.vectors, group.numbers)
        once = self.layout.once
        once.append(f"real *W{group.name} = {self.layout.array('packed', group.name)};")
        once.append(
            f"for (long u = me * {group.tile}; u < {group.width}; u += threads * {group.tile}) {{"
        )
        offset = 0
        for call in group.calls:
            for place, (c, vector) in enumerate(call):
                block = group.blocks[c]
                node = self.nodes[block.product]
                weight = self.layout.array("weight", node["map"])
                bias = self.layout.array("bias", node["map"]) if node["bias"] else "(real *)0"
                back = int(bool(node.attributes.get("transposed")))
                ld = self.layout.graph.maps[node["map"]].inputs
                tile = f"W{group.name} + u / {group.tile} * VL * {group.numbers}"
                to = f"{tile} + VL * {offset + place}"
                first, left = (
                    f"{block.start} + u + VL * {vector}",
                    f"{group.width} - u - VL * {vector}",
                )
                once.append(
                    f"J->products->pack({to}, {weight} + {node['start']}, {ld}, {back}, {bias}, "
                    f"{first}, {left}, {group.inputs}, VL * {len(call)});"
                )
            offset += len(call) * (group.inputs + 1)
        once.append("}")

    def tile(self, group: Group) -> list[str]:
        """The tile of a group that begins with unit `first`, for all sequences."""
        root, start = self.layout.root(group.argument)
        width = self.nodes[root].width
        x = f"{self.layout.pointer[root]} + low * {width} + {start}, {width}"
        if not self.is_packed:
            return [self._direct(group, block, x) for block in group.blocks]
        lines, offset = [], 0
        for call in group.calls:
            out, ld, left = [], [], []
            for c, vector in call:
                block = group.blocks[c]
                width = self.nodes[block.product].width
                row = f"{self.layout.pointer[block.product]} + low * {width}"
                out.append(f"{row} + {block.start} + first + VL * {vector}")
                ld.append(str(width))
                left.append(f"{group.width} - first - VL * {vector}")
            weights = f"W{group.name} + first / {group.tile} * VL * {group.numbers} + VL * {offset}"
            lines += [
                f"{{ real *out[] = {{{', '.join(out)}}};",
                f"const long ld[] = {{{', '.join(ld)}}}, left[] = {{{', '.join(left)}}};",
                f"J->products->multiply[{len(call)}]({weights}, {x}, {group.inputs}, high - low, "
                "out, ld, left); }",
            ]
            offset += len(call) * (group.inputs + 1)
        return lines

    def _direct(self, group: Group, block: Columns, x: str) -> str:
        node = self.nodes[block.product]
        ld, row = self.layout.graph.maps[node["map"]].inputs, f"({block.start} + first)"
        weight = f"{self.layout.array('weight', node['map'])} + {node['start']} + {row} * {ld}"
        bias = f"{self.layout.array('bias', node['map'])} + {row}" if node["bias"] else "(real *)0"
        left = f"{group.width} - first"
        return (
            f"J->products->direct({weight}, {ld}, {bias}, {x}, {group.inputs}, high - low, "
            f"{self.layout.pointer[block.product]} + low * {node.width} + {row}, {node.width}, "
            f"{left} < {group.tile} ? {left} : {group.tile});"
        )
