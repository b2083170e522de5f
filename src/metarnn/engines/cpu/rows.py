"""Any stage: threads split the sequences, and work off a row of numbers node by node."""

from __future__ import annotations

from metarnn.engines.cpu.layout import Layout, expression, number, put, summed
from metarnn.graph import Stage
from metarnn.graph.ops import OPS


class Rows:
    """A stage in C for sequence b. Elementwise nodes of one width that follow share a loop."""

    def __init__(self, layout: Layout, stage: Stage) -> None:
        self.layout, self.nodes = layout, layout.nodes
        self.lines: list[str] = []
        self.added: set[int] = set()  # nodes that loops have added to their sums
        self.found: set[int] = set()  # nodes that another one has computed along with itself
        computed = [k for k in stage.rest if self.nodes[k].op != "slice"]
        for k in computed:
            if k not in layout.pointer:
                layout.pointer[k] = layout.room(k)
        group: list[int] = []
        for k in computed:
            node = self.nodes[k]
            if group and not (node.elementwise and node.width == self.nodes[group[0]].width):
                self.loop(group)
                group = []
            if node.elementwise:
                group.append(k)
            elif k not in self.found:
                self.lines += self.whole(k, self.twin(k, computed))
        self.loop(group)
        for k in (*stage.products, *computed):
            for target in layout.stores.get(k, ()):
                if target != layout.pointer[k] and not (summed(target) and k in self.added):
                    self.lines.append(fill(layout, k, target))

    def loop(self, group: list[int]) -> None:
        """Elementwise nodes of one width: values used outside the loop are stored."""
        if not group:
            return
        n, known = self.nodes[group[0]].width, {}
        self.lines.append(f"for (long u = 0; u < {n}; u += VL) {{ const long m = {n} - u;")
        for k in group:
            for a in self.nodes[k].args:
                if a in known:
                    continue
                if self.nodes[a].op == "number":
                    known[a] = f"V({number(self.nodes[a]['value'])})"
                    continue
                known[a] = f"y{a}"
                row = self.layout.row(a)
                text = f"V({row}[0])" if self.nodes[a].width == 1 else f"load({row} + u, m)"
                self.lines.append(f"const v y{a} = {text};")
            text = expression(self.nodes[k], [known[a] for a in self.nodes[k].args])
            known[k] = f"y{k}"
            self.lines.append(f"const v y{k} = {text};")
            targets = self.layout.stores.get(k, ())
            for target in filter(summed, targets):
                self.lines.append(put(target, f"{target} + b * {n} + u", f"y{k}"))
                self.added.add(k)
            inside = set(self.layout.users[k]) <= set(group)
            if not inside or not all(map(summed, targets)):
                self.lines.append(f"store({self.layout.row(k)} + u, y{k}, m);")
        self.lines.append("}")

    def twin(self, k: int, computed: list[int]) -> int | None:
        """For the norm of a row its reciprocal deviation, if that is asked for too; and so back."""
        node = self.nodes[k]
        other = {"norm": "rstd", "rstd": "norm"}.get(node.op)
        for j in computed:
            same = (self.nodes[j].args, self.nodes[j].attributes) == (node.args, node.attributes)
            if self.nodes[j].op == other and same:
                return j
        return None

    def whole(self, k: int, twin: int | None = None) -> list[str]:
        """An operation in which the numbers of a row meet one another."""
        node, to = self.nodes[k], self.layout.row(k)
        if twin is not None:
            self.found.add(twin)
            norm, rstd = (k, twin) if node.op == "norm" else (twin, k)
            x, n = self.layout.row(node.args[0]), self.nodes[norm].width
            eps = number(node.attributes["eps"])
            return [
                f"{self.layout.row(rstd)}[0] = row_norm({self.layout.row(norm)}, {x}, {n}, {eps});"
            ]
        if node.op == "join":
            return self.join(k)
        x, n = self.layout.row(node.args[0]), self.nodes[node.args[0]].width
        attributes = {
            name: number(value) if isinstance(value, float) else value
            for name, value in node.attributes.items()
        }
        text = OPS[node.op].c.format(to=to, x=x, n=n, width=node.width, **attributes)
        return text.split("\n")

    def join(self, k: int) -> list[str]:
        lines, start, to = [], 0, self.layout.row(k)
        for a in self.nodes[k].args:
            lines.append(_copy(self.layout, a, f"{to} + {start}"))
            start += self.nodes[a].width
        return lines


def fill(layout: Layout, k: int, target: str) -> str:
    """C that brings a node's row, or a row of constants, to its place in a target."""
    return _copy(layout, k, f"{target} + b * {layout.nodes[k].width}", add=summed(target))


def _copy(layout: Layout, k: int, to: str, add: bool = False) -> str:
    node = layout.nodes[k]
    if node.op == "number" or add:
        value = number(node["value"]) if node.op == "number" else f"{layout.row(k)}[i]"
        return f"for (long i = 0; i < {node.width}; i++) ({to})[i] {'+' * add}= {value};"
    return f"memcpy({to}, {layout.row(k)}, {node.width} * sizeof(real));"
