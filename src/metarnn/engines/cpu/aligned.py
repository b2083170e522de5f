"""A stage whose values are all rows of one width: threads may split the units into tiles."""

from __future__ import annotations

from metarnn.engines.cpu.layout import Layout, expression, number, put
from metarnn.engines.cpu.products import VECTORS, Group, Products, each_tile
from metarnn.graph import Stage
from metarnn.graph.unrolled import Visit, unrolled


def common_width(layout: Layout, stage: Stage) -> int:
    """The width of a stage's rows if all have the same and none needs another's units; else 0."""
    nodes, rest = layout.nodes, stage.rest
    widths = {nodes[k].width for k in rest if nodes[k].elementwise and nodes[k].width > 1}
    widths = widths or {nodes[k].width for k in stage.products}
    n = widths.pop() if len(widths) == 1 else 0
    if not n or any(nodes[k].width % n for k in stage.products):
        return 0
    whole = {k for k in stage.products if nodes[k].width != n}  # may be read in slices only
    if whole - {a for k in rest for a in nodes[k].args}:
        return 0  # a wide product that only later stages read would be cut into narrow blocks
    if any(a in whole for k in rest if nodes[k].op != "slice" for a in nodes[k].args):
        return 0
    return n if all(_fits(layout, stage, k, n) for k in rest) else 0


def _fits(layout: Layout, stage: Stage, k: int, n: int) -> bool:
    nodes, node = layout.nodes, layout.nodes[k]
    if node.elementwise:
        kept = k in layout.pointer or k in layout.stores
        narrow = all(nodes[a].width in (1, n) for a in node.args)
        return narrow and not (node.width == 1 and kept)
    if node.op == "slice":
        root = node.args[0]
        if node.width != n or k in layout.stores or root not in layout.pointer:
            return False
        if root in stage.products:
            return node["start"] % n == 0
        # Numbers of a state or of an earlier stage elsewhere in the row are another thread's.
        return nodes[root].op in ("input", "context", "vector") or node["start"] == 0
    if node.op == "join":
        read_here = any(user in stage.rest for user in layout.users[k])
        return not read_here and all(nodes[a].width == n for a in node.args)
    return False


def aligned(
    layout: Layout, products: Products, groups: list[Group], stage: Stage, n: int
) -> list[str]:
    """A stage in C: for each of the thread's tiles the products, then the elementwise work."""
    tile = groups[0].tile if groups else f"(VL * {VECTORS})"
    lines = [line for group in groups for line in products.tile(group)]
    body = _Body(layout, stage, n).lines
    if body:
        lines += [
            f"const long end = first + {tile} < {n} ? first + {tile} : {n};",
            "for (long b = low; b < high; b++) for (long u = first; u < end; u += VL) {",
            # Twice, so that the compiler knows of all but the last vector that it is whole.
            f"if (u + VL <= {n}) {{ const long m = VL;",
            *body,
            f"}} else {{ const long m = {n} - u;",
            *body,
            "} }",
        ]
    return each_tile(tile, n, lines)


class _Body:
    """The elementwise work on one vector of units u of sequence b, of which m count."""

    def __init__(self, layout: Layout, stage: Stage, n: int) -> None:
        self.layout, self.rest = layout, frozenset(stage.rest)
        self.known: dict[int, str] = {}
        self.lines: list[str] = []
        for k in (*stage.products, *stage.rest):
            node = layout.nodes[k]
            targets = list(layout.stores.get(k, ()))
            if node.op == "slice":
                continue
            home = layout.pointer.get(k)
            if node.op == "linear":  # the product itself has written that
                targets = [target for target in targets if target != home]
            elif home and home not in targets:
                targets = [home, *targets]
            for target in targets:
                row = f"{target} + b * {node.width}"
                if node.op == "join":
                    starts = range(0, node.width, n)
                    for start, a in zip(starts, node.args, strict=True):
                        self.lines.append(put(target, f"{row} + {start} + u", self.value(a)))
                elif node.width == n:
                    self.lines.append(put(target, f"{row} + u", self.value(k)))
                else:  # a product of several blocks that has a second place to go to
                    self.lines += [
                        put(
                            target,
                            f"{row} + {start} + u",
                            f"load({layout.row(k)} + {start} + u, m)",
                        )
                        for start in range(0, node.width, n)
                    ]

    def value(self, k: int) -> str:
        """The C name of a value, after the lines that compute or load it."""
        return unrolled(self._visit, k)

    def _visit(self, k: int) -> Visit[str]:
        if k not in self.known:
            node = self.layout.nodes[k]
            if node.op == "number":
                self.known[k] = f"V({number(node['value'])})"
                return self.known[k]
            if k in self.rest and node.elementwise:
                args: list[str] = []
                for a in node.args:
                    args.append((yield a))
                text = expression(node, args)
            elif node.width == 1:
                text = f"V({self.layout.row(k)}[0])"
            else:
                text = f"load({self.layout.row(k)} + u, m)"
            self.known[k] = f"y{k}"
            self.lines.append(f"const v y{k} = {text};")
        return self.known[k]
