"""From a graph to C: a loop over time whose body does the stages of one step.

A stage whose values are all rows of one width is *aligned*: threads split the units, each computes
its columns of the matrix products tile by tile and the elementwise work on the tile right after,
and they meet once, at the end of the stage. In any other stage (layer norm, softmax, rows of
several widths) threads first split the columns of the products, meet, then split the sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from metarnn.graph import Graph, Node, Stage, stages

HERE = Path(__file__).parent
PRELUDE = (HERE / "prelude.c").read_text()
PRODUCTS = PRELUDE + (HERE / "products.c").read_text()
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
CALLS = ("sigmoid", "tanh", "relu", "exp", "softplus", "max", "min", "greater", "where")
TILE = 4  # vectors of columns in a tile: with 6 rows of x, 24 sums in registers (AVX-512)


@dataclass(frozen=True)
class Program:
    """C source and the order of the pointers it takes.

    `arrays` lists them as (kind, name): inputs and outputs [T, B, n], contexts [B, n], vectors
    [n], states [slots, B, n] (the state before step s is in slot s % slots) and their initial
    values [B, n], weights and biases of maps, scratch of `scratch[name]` numbers a sequence,
    packed weights.
    """

    source: str
    arrays: tuple[tuple[str, str], ...]
    scratch: dict[str, int]
    packed: dict[str, tuple[int, int, int]]  # width, vectors a tile, numbers a lane and tile
    outputs: dict[str, int]  # the width of each output that has an array
    aliases: dict[str, str]  # an output that is the same node as another one
    states: int
    shares: int  # how many threads can share the work of one sequence
    aligned: bool
    products: int  # multiply-adds a step and sequence
    width: int  # of the widest row


@dataclass
class Columns:
    """A block of n columns of a product: a gate."""

    product: int
    start: int


@dataclass
class Group:
    """Products of one row with several blocks of columns, computed tile by tile."""

    argument: int
    inputs: int
    columns: list[Columns]
    width: int  # of each block
    name: str = ""
    chunks: list[list[tuple[int, int]]] = field(default_factory=list)  # (column, vector in tile)


class Emitter:
    """Emits a graph's loop: forward or backward in time, weights packed or, for few steps, not."""

    def __init__(self, graph: Graph, backward: bool = False, packed: bool = True) -> None:
        self.graph, self.nodes, self.backward = graph, graph.nodes, backward
        self.packs = packed
        self.stages = stages(graph)
        self.lines: list[str] = []
        self.arrays: list[tuple[str, str]] = []
        self.scratch: dict[str, int] = {}
        self.packed: dict[str, tuple[int, int, int]] = {}
        self.pointer: dict[int, str] = {}  # the C name of the row array that holds a node
        self.home = {k: s for s, st in enumerate(self.stages) for k in (*st.products, *st.rest)}
        self.groups: list[Group] = []
        self.stores: dict[int, list[str]] = {}  # where else a node goes: states and outputs
        self.aliases: dict[str, str] = {}
        self.prologue: list[str] = []
        self.packing: list[str] = []
        self.units = 1

    # --- memory -----------------------------------------------------------------------------

    def array(self, kind: str, name: str) -> str:
        self.arrays.append((kind, name))
        return f"J->p[{len(self.arrays) - 1}]"

    def lay_out(self) -> None:
        """Give every node that must be in memory its place."""
        add = self.prologue.append
        for k, node in enumerate(self.nodes):
            w = node.width
            if node.op == "input":
                add(f"real *x{k} = {self.array('input', node['name'])} + t * B * {w};")
            elif node.op == "context":
                add(f"real *x{k} = {self.array('context', node['name'])};")
            elif node.op == "vector":
                add(f"real *x{k} = {self.array('vector', node['name'])};")
            else:
                continue
            self.pointer[k] = f"x{k}"
        for index, result in enumerate(self.graph.next_states):
            w = self.nodes[result].width
            base = self.array("state", str(index))
            first = self.array("initial", str(index))
            self.packing.append(f"if (me == 0) memcpy({base}, {first}, B * {w} * sizeof(real));")
            add(f"real *before{index} = {base} + (s % J->slots[{index}]) * B * {w};")
            add(f"real *after{index} = {base} + ((s + 1) % J->slots[{index}]) * B * {w};")
            self.stores.setdefault(result, []).append(f"after{index}")
        for k, node in enumerate(self.nodes):
            if node.op == "state":
                self.pointer[k] = f"before{node['index']}"
        for number, (name, k) in enumerate(self.graph.outputs.items()):
            first = next(n for n, other in self.graph.outputs.items() if other == k)
            if first != name:
                self.aliases[name] = first
                continue
            w = self.nodes[k].width
            add(f"real *out{number} = {self.array('output', name)} + t * B * {w};")
            self.stores.setdefault(k, []).append(f"out{number}")
        for k, node in enumerate(self.nodes):
            if node.op == "linear" or (not node.source and self.in_memory(k)):
                stored = self.stores.get(k)
                if stored:  # its first destination holds it for everyone
                    self.pointer[k] = stored[0]
                else:
                    self.scratch[str(k)] = node.width
                    add(f"real *m{k} = {self.array('scratch', str(k))};")
                    self.pointer[k] = f"m{k}"

    def in_memory(self, k: int) -> bool:
        """Whether a node's value is read by a product, or in another stage than its own."""
        if self.nodes[k].op == "slice":
            return False
        users = [u for u, node in enumerate(self.nodes) if k in node.args]
        for user in users:  # a slice is no value of its own: who reads it reads this one
            if self.nodes[user].op == "slice":
                users += [u for u, node in enumerate(self.nodes) if user in node.args]
                if user in self.stores:
                    return True
            elif self.nodes[user].op == "linear" or self.home[user] != self.home[k]:
                return True
        return False

    # --- stages -----------------------------------------------------------------------------

    def width_of(self, stage: Stage) -> int:
        """The common width of an aligned stage, 0 if it is not one."""
        nodes = self.nodes
        widths = {nodes[k].width for k in stage.rest if nodes[k].elementwise and nodes[k].width > 1}
        if not widths:
            widths = {nodes[k].width for k in stage.products}
        if len(widths) != 1:
            return 0
        n = widths.pop()
        if any(nodes[k].width % n for k in stage.products):
            return 0
        for k in stage.rest:
            node = nodes[k]
            if node.elementwise:
                if any(nodes[a].width not in (1, n) for a in node.args):
                    return 0
                if node.width == 1 and (k in self.pointer or k in self.stores):
                    return 0
            elif node.op == "slice":
                if node.width != n or (node["start"] % n and node.args[0] in stage.products):
                    return 0
                if self.nodes[node.args[0]].op not in ("input", "context", "vector") and (
                    node.args[0] not in stage.products and node["start"] != 0
                ):
                    return 0  # another thread's units
                if node.args[0] not in self.pointer:
                    return 0
            elif node.op == "join":
                inside = any(k in nodes[u].args for u in stage.rest)
                if inside or any(nodes[a].width != n for a in node.args):
                    return 0
            else:
                return 0
        for k in stage.products:  # a product read whole in this stage must be as wide as the rest
            if nodes[k].width != n and any(
                k in nodes[u].args and nodes[u].op != "slice" for u in stage.rest
            ):
                return 0
        for k in (*stage.products, *stage.rest):
            if k in self.stores and nodes[k].op in ("slice",):
                return 0
        return n

    def emit(self) -> Program:
        self.lay_out()
        body: list[str] = []
        for number, stage in enumerate(self.stages):
            n = self.width_of(stage)
            body.append(f"/* stage {number} */")
            body += self.aligned(number, stage, n) if n else self.by_rows(number, stage)
            if number + 1 == len(self.stages):
                body += self.copies()
            if self.must_meet():
                body.append("meet(J, me, &round);")
        if not self.stages:
            body += self.copies()
        time = "T - 1 - s" if self.backward else "s"
        work = [
            "static void work(job *J, long me) {",
            "const long T = J->T, B = J->B, threads = J->threads;",
            "long round = 0; (void)round; (void)threads;",
            *self.packing,
            *(["meet(J, me, &round);"] if self.packing else []),
            "for (long s = 0; s < T; s++) {",
            f"const long t = {time}; (void)t;",
            *self.prologue,
            *body,
            "}",
            "}",
        ]
        source = "\n".join([PRELUDE, *work, EPILOGUE])
        linear = [n for n in self.nodes if n.op == "linear"]
        return Program(
            source,
            tuple(self.arrays),
            self.scratch,
            self.packed,
            {
                n: self.nodes[k].width
                for n, k in self.graph.outputs.items()
                if n not in self.aliases
            },
            self.aliases,
            len(self.graph.next_states),
            self.units,
            all(self.width_of(stage) for stage in self.stages),
            sum(n.width * self.nodes[n.args[0]].width for n in linear),
            max((n.width for n in self.nodes), default=1),
        )

    def must_meet(self) -> bool:
        """Threads that only ever touch their own units or sequences need not wait."""
        if any(stage.products for stage in self.stages) or len(self.stages) != 1:
            return True
        return not self.width_of(self.stages[0]) or bool(self.loose())

    # --- products ---------------------------------------------------------------------------

    def product_groups(self, number: int, products: tuple[int, ...], n: int) -> list[Group]:
        """Products of the same row side by side, so that each number of it is loaded once."""
        found: dict[tuple[int, int], Group] = {}
        for k in products:
            argument = self.nodes[k].args[0]
            inputs = self.nodes[argument].width
            width = n or self.nodes[k].width
            group = found.setdefault((argument, width), Group(argument, inputs, [], width))
            group.columns += [Columns(k, c) for c in range(0, self.nodes[k].width, width)]
        groups = list(found.values())
        blocks = max((len(g.columns) for g in groups), default=1)
        self.vectors = max(1, TILE // blocks)  # of units in a tile
        for index, group in enumerate(groups):
            group.name = f"{number}_{index}"
            all_ = [(c, u) for c in range(len(group.columns)) for u in range(self.vectors)]
            group.chunks = [all_[i : i + TILE] for i in range(0, len(all_), TILE)]
            if self.packs:
                self.pack(group)
        return groups

    def pack(self, group: Group) -> None:
        tiles = f"(({group.width} + VL * {self.vectors} - 1) / (VL * {self.vectors}))"
        per_tile = len(group.columns) * self.vectors * (group.inputs + 1)
        self.packed[group.name] = (group.width, self.vectors, per_tile)
        weight = f"W{group.name}"
        self.packing.append(f"real *{weight} = {self.array('packed', group.name)};")
        lines = [f"for (long tile = me; tile < {tiles}; tile += threads) {{"]
        offset = 0
        for chunk in group.chunks:
            for place, (c, u) in enumerate(chunk):
                column = group.columns[c]
                node = self.nodes[column.product]
                lines.append(
                    self.pack_one(
                        node, column.start, group, u, offset, place, len(chunk), weight, per_tile
                    )
                )
            offset += len(chunk) * (group.inputs + 1)
        self.packing += [*lines, "}"]

    def pack_one(
        self,
        node: Node,
        start: int,
        group: Group,
        u: int,
        offset: int,
        place: int,
        size: int,
        weight: str,
        per_tile: int,
    ) -> str:
        back = bool(node.attributes.get("transposed"))
        # ld, first column and bias pointer are those of the whole map.
        matrix = self.map_pointer(node["map"])
        bias = self.bias_pointer(node["map"]) if node["bias"] else "(real *)0"
        ld = self.graph.maps[node["map"]].inputs
        first = f"({start} + tile * VL * {self.vectors} + VL * {u})"
        count = f"({group.width} - tile * VL * {self.vectors} - VL * {u})"
        where = f"{weight} + tile * VL * {per_tile} + VL * {offset} + VL * {place}"
        if back:
            base, first_row = f"{matrix} + {node['start']}", first
        else:
            base, first_row = f"{matrix} + {node['start']}", first
        return (
            f"J->products->pack({where}, {base}, {ld}, {int(back)}, {bias}, {first_row}, {count}, "
            f"{group.inputs}, VL * {size});"
        )

    def map_pointer(self, name: str) -> str:
        return self._shared("weight", name)

    def bias_pointer(self, name: str) -> str:
        return self._shared("bias", name)

    def _shared(self, kind: str, name: str) -> str:
        if (kind, name) not in self.arrays:
            self.arrays.append((kind, name))
        return f"J->p[{self.arrays.index((kind, name))}]"

    def multiply(self, group: Group) -> list[str]:
        """One tile of a group's products, for all sequences."""
        base, (start, row) = self.address(group.argument)
        x = f"{base} + {start}, {row}"
        if not self.packs:
            return [self.multiply_direct(group, column, x) for column in group.columns]
        lines, offset = [], 0
        per_tile = len(group.columns) * self.vectors * (group.inputs + 1)
        for chunk in group.chunks:
            outs, lds, counts = [], [], []
            for c, u in chunk:
                column = group.columns[c]
                pointer = self.pointer[column.product]
                outs.append(f"{pointer} + {column.start} + tile * VL * {self.vectors} + VL * {u}")
                lds.append(str(self.nodes[column.product].width))
                counts.append(f"{group.width} - tile * VL * {self.vectors} - VL * {u}")
            lines += [
                "{",
                f"real *o[] = {{{', '.join(outs)}}};",
                f"const long ld[] = {{{', '.join(lds)}}}, m[] = {{{', '.join(counts)}}};",
                f"J->products->multiply[{len(chunk)}](W{group.name} + tile * VL * {per_tile} + VL * {offset}, {x}, "
                f"{group.inputs}, B, o, ld, m);",
                "}",
            ]
            offset += len(chunk) * (group.inputs + 1)
        return lines

    def multiply_direct(self, group: Group, column: Columns, x: str) -> str:
        node = self.nodes[column.product]
        ld, unit = self.graph.maps[node["map"]].inputs, f"tile * VL * {self.vectors}"
        row = f"({column.start} + {unit})"
        bias = f"{self._shared('bias', node['map'])} + {row}" if node["bias"] else "(real *)0"
        weight = f"{self._shared('weight', node['map'])} + {node['start']} + {row} * {ld}"
        left = f"{group.width} - {unit}"
        count = f"({left} < VL * {self.vectors} ? {left} : VL * {self.vectors})"
        return (
            f"J->products->direct({weight}, {ld}, {bias}, {x}, {group.inputs}, B, "
            f"{self.pointer[column.product]} + {row}, {node.width}, {count});"
        )

    # --- an aligned stage -------------------------------------------------------------------

    def aligned(self, number: int, stage: Stage, n: int) -> list[str]:
        groups = self.product_groups(number, stage.products, n)
        self.units = max(self.units, -(-n // (16 * self.vectors)))
        size = f"(VL * {self.vectors})"
        lines = [
            f"for (long tile = me; tile * {size} < {n}; tile += threads) {{",
            *(line for group in groups for line in self.multiply(group)),
        ]
        inner = [*self.elementwise(stage, n)]
        if inner:
            lines += [
                f"const long end = (tile + 1) * {size} < {n} ? (tile + 1) * {size} : {n};",
                "for (long b = 0; b < B; b++)",
                "for (long u = tile * " + size + "; u < end; u += VL) {",
                f"if (u + VL <= {n}) {{ const long m = VL;",
                *inner,
                f"}} else {{ const long m = {n} - u;",
                *inner,
                "} }",
            ]
        return [*lines, "}"]

    def elementwise(self, stage: Stage, n: int) -> Iterator[str]:
        """The body of an aligned stage for one vector of units u of sequence b."""
        known: dict[int, str] = {}
        lines: list[str] = []

        def value(k: int) -> str:
            if k not in known:
                node = self.nodes[k]
                if node.op == "number":
                    known[k] = f"V({number_text(node['value'])})"
                elif k in stage.rest and node.elementwise:
                    known[k] = f"y{k}"
                    lines.append(
                        f"const v y{k} = {expression(node, [value(a) for a in node.args])};"
                    )
                else:
                    known[k] = f"y{k}"
                    base, offset = self.address(k)
                    if node.width == 1:
                        at = (
                            base
                            if node.op == "vector"
                            else f"{base}[b * {offset[1]} + {offset[0]}]"
                        )
                        lines.append(
                            f"const v y{k} = V({at if node.op != 'vector' else base + '[0]'});"
                        )
                    else:
                        row = "" if self.root(k).op == "vector" else f"b * {offset[1]} + "
                        lines.append(f"const v y{k} = load({base} + {row}{offset[0]} + u, m);")
            return known[k]

        for k in (*stage.products, *stage.rest):
            node = self.nodes[k]
            targets = list(self.stores.get(k, ()))
            if node.op == "linear":
                targets = targets[1:]  # the product itself wrote the first
            elif node.op == "slice":
                continue
            elif k in self.pointer and self.pointer[k] not in targets:
                targets.append(self.pointer[k])
            if node.op == "join":
                at = 0
                for a in node.args:
                    lines += [
                        f"store({target} + b * {node.width} + {at} + u, {value(a)}, m);"
                        if False
                        else f"store({target} + b * {node.width} + {at} + u, @, m);".replace(
                            "@", value(a)
                        )
                        for target in targets
                    ]
                    at += self.nodes[a].width
            else:
                for target in targets:
                    if node.op == "linear" and node.width != n:
                        for at in range(0, node.width, n):
                            source = f"load({self.pointer[k]} + b * {node.width} + {at} + u, m)"
                            lines.append(
                                f"store({target} + b * {node.width} + {at} + u, {source}, m);"
                            )
                    else:
                        text = value(k)
                        lines.append(f"store({target} + b * {n} + u, {text}, m);")
        return iter(lines)

    def root(self, k: int) -> Node:
        while self.nodes[k].op == "slice":
            k = self.nodes[k].args[0]
        return self.nodes[k]

    def address(self, k: int) -> tuple[str, tuple[int, int]]:
        """Where a value lies: array, (offset in the row, length of a row)."""
        offset = 0
        while self.nodes[k].op == "slice":
            offset += self.nodes[k]["start"]
            k = self.nodes[k].args[0]
        return self.pointer[k], (offset, self.nodes[k].width)

    # --- any other stage --------------------------------------------------------------------

    def by_rows(self, number: int, stage: Stage) -> list[str]:
        lines: list[str] = []
        if stage.products:
            groups = self.product_groups(number, stage.products, 0)
            for group in groups:
                self.units = max(self.units, -(-group.width // (16 * self.vectors)))
                lines += [
                    f"for (long tile = me; tile * VL * {self.vectors} < {group.width}; tile += threads) {{",
                    *self.multiply(group),
                    "}",
                ]
            lines.append("meet(J, me, &round);")
        lines += ["for (long b = B * me / threads; b < B * (me + 1) / threads; b++) {"]
        lines += self.row(stage)
        return [*lines, "}"]

    def row(self, stage: Stage) -> list[str]:
        """All of a stage's nodes for sequence b, one after the other."""
        lines: list[str] = []
        place: dict[int, str] = {}

        def at(k: int) -> str:
            """A pointer to node k's numbers."""
            if k in place:
                return place[k]
            node = self.nodes[k]
            if node.op == "slice":
                return f"({at(node.args[0])} + {node['start']})"
            if node.op == "vector":
                return self.pointer[k]
            return f"({self.pointer[k]} + b * {node.width})"

        group: list[int] = []

        def flush() -> None:
            if group:
                lines.extend(self.fused(group, at, stage, place))
                group.clear()

        # Numbers first: a row of them is a row like any other.
        for k in stage.rest:
            node = self.nodes[k]
            if node.op == "slice":
                continue
            if k in self.pointer:
                place[k] = f"({self.pointer[k]} + b * {node.width})"
            else:
                self.scratch[f"row{k}"] = node.width
                self._shared("scratch", f"row{k}")
                place[k] = f"({self._shared('scratch', f'row{k}')} + b * {node.width})"
        for k in stage.rest:
            node = self.nodes[k]
            if node.op == "slice":
                continue
            if node.elementwise:
                if group and self.nodes[group[0]].width != node.width:
                    flush()
                group.append(k)
                continue
            flush()
            lines.extend(self.whole_row(k, at, place[k]))
        flush()
        for k in (*stage.products, *stage.rest):
            home = at(k) if k in place or k in self.pointer else None
            for target in self.stores.get(k, ()):
                if home is not None and target != self.pointer.get(k):
                    w = self.nodes[k].width
                    lines.append(f"memcpy({target} + b * {w}, {home}, {w} * sizeof(real));")
                elif home is None:
                    w = self.nodes[k].width
                    lines.append(f"memcpy({target} + b * {w}, {at(k)}, {w} * sizeof(real));")
        return lines

    def fused(self, group: list[int], at, stage: Stage, place: dict[int, str]) -> list[str]:
        """Elementwise nodes of one width in one loop; those used elsewhere are stored."""
        n = self.nodes[group[0]].width
        known: dict[int, str] = {}
        lines = [f"for (long u = 0; u < {n}; u += VL) {{ const long m = {n} - u; (void)m;"]
        for k in group:
            args = []
            for a in self.nodes[k].args:
                if a not in known:
                    node = self.nodes[a]
                    if node.op == "number":
                        known[a] = f"V({number_text(node['value'])})"
                    else:
                        known[a] = f"y{a}"
                        text = f"V({at(a)}[0])" if node.width == 1 else f"load({at(a)} + u, m)"
                        lines.append(f"const v y{a} = {text};")
                args.append(known[a])
            known[k] = f"y{k}"
            lines.append(f"const v y{k} = {expression(self.nodes[k], args)};")
            users = [u for u, node in enumerate(self.nodes) if k in node.args]
            if k in self.pointer or k in self.stores or any(u not in group for u in users):
                lines.append(f"store({place[k]} + u, y{k}, m);")
        return [*lines, "}"]

    def whole_row(self, k: int, at, to: str) -> list[str]:
        node = self.nodes[k]
        arg = node.args[0]
        n = self.nodes[arg].width
        if node.op == "join":
            lines, offset = [], 0
            for a in node.args:
                w = self.nodes[a].width
                if self.nodes[a].op == "number":
                    value = number_text(self.nodes[a]["value"])
                    lines.append(f"for (long i = 0; i < {w}; i++) {to}[{offset} + i] = {value};")
                else:
                    lines.append(f"memcpy({to} + {offset}, {at(a)}, {w} * sizeof(real));")
                offset += w
            return lines
        x = at(arg)
        if node.op == "repeat":
            r = node["times"]
            return [
                f"for (long i = 0; i < {n}; i++) for (long j = 0; j < {r}; j++) {to}[i * {r} + j] = {x}[i];"
            ]
        if node.op == "fold":
            r = node["times"]
            return [
                f"for (long i = 0; i < {node.width}; i++) {{ real s = 0; "
                f"for (long j = 0; j < {r}; j++) s += {x}[i * {r} + j]; {to}[i] = s; }}"
            ]
        if node.op in ("sum", "mean"):
            return [f"{to}[0] = row_sum({x}, {n}){f' / {n}' if node.op == 'mean' else ''};"]
        if node.op == "softmax":
            return [f"row_softmax({to}, {x}, {n});"]
        if node.op == "norm":
            return [f"row_norm({to}, {x}, {n}, {number_text(node['eps'])});"]
        if node.op == "rstd":
            return [
                f"{{ real mean; {to}[0] = row_rstd({x}, {n}, {number_text(node['eps'])}, &mean); }}"
            ]
        if node.op in ("cumsum", "cumsum_back"):
            return [f"row_cumsum({to}, {x}, {n}, {int(node.op == 'cumsum_back')});"]
        raise NotImplementedError(node.op)

    # --- results that no stage computes -----------------------------------------------------

    def loose(self) -> list[int]:
        return [k for k in self.stores if self.nodes[k].source or self.nodes[k].op == "slice"]

    def copies(self) -> list[str]:
        """States and outputs that are sources as they are: copied row by row."""
        lines = []
        for k in self.loose():
            node = self.nodes[k]
            for target in self.stores[k]:
                if node.op == "number":
                    value = number_text(node["value"])
                    lines.append(
                        f"for (long i = 0; i < {node.width}; i++) {target}[b * {node.width} + i] = {value};"
                    )
                else:
                    base, (offset, row) = self.address(k)
                    step = "" if self.root(k).op == "vector" else f"b * {row} + "
                    lines.append(
                        f"memcpy({target} + b * {node.width}, {base} + {step}{offset}, {node.width} * sizeof(real));"
                    )
        if not lines:
            return []
        return ["for (long b = B * me / threads; b < B * (me + 1) / threads; b++) {", *lines, "}"]


def number_text(value: float) -> str:
    if value != value:
        return '(real)__builtin_nan("")'
    if value in (float("inf"), float("-inf")):
        return "(real)__builtin_inf()" if value > 0 else "(-(real)__builtin_inf())"
    return f"((real){float(value)!r})"


def expression(node: Node, args: list[str]) -> str:
    if node.op in INFIX:
        return f"{args[0]} {INFIX[node.op]} {args[1]}"
    if node.op == "identity":
        return args[0]
    return f"v_{node.op}({', '.join(args)})"


EPILOGUE = """
/* torch's own OpenMP threads where there are some: after an operation of torch's they stay awake
   for a while and would keep the processors from any others. */
typedef struct {
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    int (*number)(void), (*count)(void);
} openmp;
typedef struct { job *j; const openmp *omp; long me; } seat;

static void *sit(void *p) {
    seat *s = p;
    while (!__atomic_load_n(&s->j->started, __ATOMIC_ACQUIRE)) sched_yield();
    work(s->j, s->me);
    return 0;
}
static void member(void *p) {
    seat *s = p;
    /* Never more threads than asked for, but there may be fewer: all must know before they meet. */
    __atomic_store_n(&s->j->threads, s->omp->count(), __ATOMIC_RELAXED);
    work(s->j, s->omp->number());
}
long vector_length(void) { return VL; }
void run(real **p, const long *slots, const library *products, const openmp *omp, long T, long B,
         long threads) {
    job j = {p, slots, products, T, B, threads < MOST_THREADS ? threads : MOST_THREADS, 0};
    seat seats[MOST_THREADS] = {{&j, omp, 0}};
    if (threads > 1 && omp) {
        omp->parallel(member, seats, j.threads, 0);
        return;
    }
    pthread_t id[MOST_THREADS];
    long n = 1;
    for (; n < j.threads; n++) {
        seats[n] = (seat){&j, omp, n};
        if (pthread_create(&id[n], 0, sit, &seats[n])) break;
    }
    j.threads = n;  /* as many as the system gave */
    __atomic_store_n(&j.started, 1, __ATOMIC_RELEASE);
    work(&j, 0);
    for (long i = 1; i < n; i++) pthread_join(id[i], 0);
}
"""
