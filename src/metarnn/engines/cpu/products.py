"""Matrix products of a stage: columns of weights in tiles, products of the same row together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from metarnn.engines.codegen.statements import Comment, For, Statement
from metarnn.engines.cpu.arrays import Arrays, Key
from metarnn.engines.cpu.statements import Array, Call, Pointer, Scope

VECTORS = 4  # of columns in a call: with 6 rows of x, 24 sums stay in registers (AVX-512)
ROWS = "b_end - b_begin"
LANES = 16  # of a vector, at most: a block of fewer columns needs one


class Columns(NamedTuple):
    """A block of columns of a product: a gate."""

    product: int
    start: int


class PackedSize(NamedTuple):
    width: int
    vectors: int
    per_tile: int  # packed vectors

    def elements(self, vector_length: int) -> int:
        tiles = -(-self.width // (vector_length * self.vectors))
        return tiles * self.per_tile * vector_length


@dataclass(frozen=True)
class ProductGroup:
    """Products of one row by blocks of `width` columns, computed tile by tile.

    A tile is `vectors` vectors of units, and the columns of all blocks that belong to them. It is
    worked off in calls, each a list of (block, vector) of at most VECTORS.
    """

    key: Key  # of the array of packed weights
    packed: str  # the pointer to it
    argument: int
    inputs: int
    width: int
    vectors: int
    blocks: tuple[Columns, ...]

    @property
    def calls(self) -> list[list[tuple[Columns, int]]]:
        every = [(block, vector) for block in self.blocks for vector in range(self.vectors)]
        return [every[i : i + VECTORS] for i in range(0, len(every), VECTORS)]

    @property
    def per_tile(self) -> int:
        """Packed vectors of a tile: for each column the bias, then the inputs."""
        return len(self.blocks) * self.vectors * (self.inputs + 1)

    def tile(self, first: str, offset: int) -> str:
        """Where the packed weights of the tile that begins with a unit are, from an offset on."""
        tile = f"{self.packed} + {first} / {tile_size(self.vectors)} * VL * {self.per_tile}"
        return plus(tile, _vectors(offset))


class Products:
    """Emits products; `packed` says whether weights are brought into the order of their use."""

    def __init__(self, arrays: Arrays, *, packed: bool) -> None:
        self.arrays, self.nodes, self.is_packed = arrays, arrays.nodes, packed
        self.packed: dict[Key, PackedSize] = {}

    def groups(self, stage: int, products: tuple[int, ...], width: int) -> list[ProductGroup]:
        """The groups of a stage whose rows are all of one width; 0 if they are not."""
        blocks: dict[tuple[int, int], list[Columns]] = {}
        for k in products:
            block = width or self.nodes[k].width
            columns = blocks.setdefault((self.nodes[k].args[0], block), [])
            columns += [Columns(k, start) for start in range(0, self.nodes[k].width, block)]
        most = max(map(len, blocks.values()), default=1)
        groups: list[ProductGroup] = []
        for index, ((argument, block), columns) in enumerate(blocks.items()):
            vectors = min(max(1, VECTORS // most), -(-block // LANES))
            maps = {self.nodes[c.product]["map"] for c in columns}
            one = len(maps) == 1
            packed = f"weight_{self.arrays.names.map(*maps)}_packed" if one else "packed_weights"
            group = ProductGroup(
                key=("packed", f"{stage}_{index}"),
                packed=self.arrays.names.unique(packed),
                argument=argument,
                inputs=self.nodes[argument].width,
                width=block,
                vectors=vectors,
                blocks=tuple(columns),
            )
            groups.append(group)
            if self.is_packed:
                self._pack(group)
        return groups

    def _pack(self, group: ProductGroup) -> None:
        arrays, step = self.arrays, tile_size(group.vectors)
        self.packed[group.key] = PackedSize(group.width, group.vectors, group.per_tile)
        shape = f"[tiles, {group.per_tile}, VL]"
        array = arrays.array(*group.key, shape, group.packed)
        pack: list[Statement] = []
        offset = 0
        for call in group.calls:
            for place, (block, vector) in enumerate(call):
                node = self.nodes[block.product]
                m = arrays.graph.maps[node["map"]]
                weight = plus(arrays.weight(node["map"], m), node["start"])
                transposed = int(bool(node.attributes.get("transposed")))
                bias = arrays.bias(node["map"], m) if node["bias"] else 0
                first = plus(block.start, "u", _vectors(vector))
                columns = minus(group.width, "u", _vectors(vector))
                pack.append(
                    Call(
                        "job->linalg->pack",
                        (group.tile("u", offset + place), weight, m.inputs, transposed, bias,
                         first, columns, group.inputs, _vectors(len(call))),
                    )
                )  # fmt: skip
            offset += len(call) * (group.inputs + 1)
        arrays.before += [
            Comment(f"{group.packed}: tiles of {step} units."),
            Pointer(group.packed, array),
            For("u", f"thread * {step}", str(group.width), tuple(pack), f"threads * {step}"),
        ]

    def multiply(self, group: ProductGroup) -> list[Statement]:
        """The tile of a group that begins with unit `tile`, for all sequences."""
        root, start, _ = self.arrays.flow.slice(group.argument)
        stride = self.nodes[root].width
        x = plus(self.arrays.pointer[root], f"b_begin * {stride}", start)
        if not self.is_packed:
            return [self._gemv(group, block, x, stride) for block in group.blocks]
        statements: list[Statement] = []
        offset = 0
        for call in group.calls:
            y = tuple(self._output(block, vector) for block, vector in call)
            strides = tuple(self.nodes[block.product].width for block, _ in call)
            columns = tuple(minus(group.width, "tile", _vectors(vector)) for _, vector in call)
            multiply = Call(
                f"job->linalg->multiply[{len(call)}]",
                (group.tile("tile", offset), x, stride, group.inputs, ROWS, "y", "ldy", "columns"),
            )
            arrays = (Array("real *y[]", y), Array("const long ldy[]", strides),
                      Array("const long columns[]", columns))  # fmt: skip
            statements.append(Scope((*arrays, multiply)))
            offset += len(call) * (group.inputs + 1)
        return statements

    def _gemv(self, group: ProductGroup, block: Columns, x: str, stride: int) -> Statement:
        arrays, node = self.arrays, self.nodes[block.product]
        m, row = arrays.graph.maps[node["map"]], f"({plus(block.start, 'tile')})"
        weight = plus(arrays.weight(node["map"], m), node["start"], f"{row} * {m.inputs}")
        bias = plus(arrays.bias(node["map"], m), row) if node["bias"] else 0
        y = plus(arrays.pointer[block.product], f"b_begin * {node.width}", row)
        left, tile = f"{group.width} - tile", tile_size(group.vectors)
        rows = f"{left} < {tile} ? {left} : {tile}"
        arguments = (weight, m.inputs, bias, x, stride, group.inputs, ROWS, y, node.width, rows)
        return Call("job->linalg->gemv", arguments)

    def _output(self, block: Columns, vector: int) -> str:
        rows = f"b_begin * {self.nodes[block.product].width}"
        pointer = self.arrays.pointer[block.product]
        return plus(pointer, rows, block.start, "tile", _vectors(vector))


def most_tiles(groups: list[ProductGroup], width: int) -> int:
    """How many tiles a stage has, with the widest vectors."""
    vectors = groups[0].vectors if groups else VECTORS
    return -(-max([width, *(group.width for group in groups)]) // (LANES * vectors))


def tile_size(vectors: int) -> str:
    """The units of a tile, in C."""
    return f"(VL * {vectors})" if vectors > 1 else "VL"


def _vectors(count: int) -> str:
    return "" if not count else "VL" if count == 1 else f"VL * {count}"


def plus(*terms: str | int) -> str:
    """A sum in C, without the terms that are nothing."""
    return " + ".join(str(term) for term in terms if term) or "0"


def minus(*terms: str | int) -> str:
    return " - ".join(str(term) for term in terms if term)
