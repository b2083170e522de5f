"""Any stage: threads split the sequences, and compute the rows of each node by node."""

from __future__ import annotations

from dataclasses import replace

from metarnn.engines.codegen.statements import Barrier, For, Let, Statement
from metarnn.engines.cpu.arrays import Arrays, Target
from metarnn.engines.cpu.products import ProductGroup, Products, tile_size
from metarnn.engines.cpu.statements import RowOperation, for_own_sequences, for_tiles
from metarnn.engines.cpu.unit_stage import VectorValues
from metarnn.graph import Stage


def row_stage(
    arrays: Arrays, products: Products, groups: list[ProductGroup], stage: Stage
) -> list[Statement]:
    """First the products, of which threads share the columns, then all else, by sequences."""
    statements: list[Statement] = []
    for group in groups:
        body = tuple(products.multiply(group))
        statements.append(for_tiles(group.width, tile_size(group.vectors), body))
    statements += [Barrier()] if groups else []
    return [*statements, for_own_sequences(tuple(_RowStage(arrays, stage).statements))]


class _RowStage:
    """What a stage computes of sequence b. Elementwise nodes of one width in a row share a loop."""

    def __init__(self, arrays: Arrays, stage: Stage) -> None:
        self.arrays, self.nodes = arrays, arrays.nodes
        self.statements: list[Statement] = []
        self.added: set[int] = set()  # nodes that loops have added to their sums
        self.computed = [k for k in stage.rest if self.nodes[k].op != "slice"]
        for k in self.computed:
            if k not in arrays.pointer:
                arrays.pointer[k] = arrays.allocate(k)
        group: list[int] = []
        done: set[int] = set()  # row operations; some compute another node along with theirs
        for k in self.computed:
            node = self.nodes[k]
            if group and not (node.elementwise and node.width == self.nodes[group[0]].width):
                self.loop(group)
                group = []
            if node.elementwise:
                group.append(k)
            elif k not in done:
                done |= self.row_operation(k)
        self.loop(group)
        for k in (*stage.products, *self.computed):
            for target in arrays.targets.get(k, ()):
                if target.pointer != arrays.pointer[k] and not (target.summed and k in self.added):
                    self.statements.append(arrays.fill(k, target))

    def loop(self, group: list[int]) -> None:
        """Elementwise nodes of one width: values used outside the loop are stored."""
        if not group:
            return
        arrays, n = self.arrays, self.nodes[group[0]].width
        values = VectorValues(arrays, group)
        for k in group:
            value, targets = values.value(k), arrays.targets.get(k, ())
            for target in targets:
                if target.summed:
                    values.statements.append(arrays.put(target, n, 0, value))
                    self.added.add(k)
            inside = set(arrays.flow.users[k]) <= set(group)
            if not inside or not all(target.summed for target in targets):
                home = Target(arrays.pointer[k])
                values.statements.append(arrays.put(home, n, 0, value))
        body = (Let("lanes", f"{n} - u"), *values.statements)
        self.statements.append(For("u", "0", str(n), body, "VL"))

    def row_operation(self, k: int) -> set[int]:
        """An operation in which the elements of a row meet. Returns the nodes it computes."""
        arrays, node = self.arrays, self.nodes[k]
        if node.op == "join":
            for start, a in arrays.flow.parts(k):
                to = replace(arrays.address(k), start=start)
                self.statements.append(arrays.copy(a, to))
            return {k}
        source, width = arrays.address(node.args[0]), self.nodes[node.args[0]].width
        twin = self.twin(k)
        if twin is None:
            self.statements.append(RowOperation(node, source, width, arrays.address(k)))
            return {k}
        norm, rstd = (k, twin) if node.op == "norm" else (twin, k)
        to = arrays.address(norm), arrays.address(rstd)
        self.statements.append(RowOperation(self.nodes[norm], source, width, *to))
        return {k, twin}

    def twin(self, k: int) -> int | None:
        """For the norm of a row its reciprocal deviation, if that is needed too; or the reverse."""
        node = self.nodes[k]
        other = {"norm": "rstd", "rstd": "norm"}.get(node.op)
        for j in self.computed:
            same = (self.nodes[j].args, self.nodes[j].attributes) == (node.args, node.attributes)
            if self.nodes[j].op == other and same:
                return j
        return None
