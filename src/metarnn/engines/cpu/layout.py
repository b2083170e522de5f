"""Where the values of a step lie: the arrays a program takes, and what goes where in them."""

from __future__ import annotations

from metarnn.graph import Graph, Node, Stage
from metarnn.graph.ops import OPS

# Outputs of which only the sum over the steps is asked for, [B, n]: adjoints of what is the same at
# all of them.
SUMMED = ("dvector.", "dcontext.")


class Layout:
    """The memory of a graph's loop.

    A node is in memory if a product reads it or another stage does; what else a stage computes
    stays in registers. In C, x3 is where source 3 lies at this step, m7 where node 7 is kept,
    before0 and after0 the two ends of state 0, out1 where output 1 goes, sum2 where output 2 is
    summed over the steps; J->p[i] are the arrays.
    """

    def __init__(self, graph: Graph, stages: list[Stage], single: bool) -> None:
        self.graph, self.nodes, self.stages = graph, graph.nodes, stages
        self.home = {k: s for s, st in enumerate(stages) for k in (*st.products, *st.rest)}
        self.users: list[list[int]] = [[] for _ in self.nodes]
        for user, node in enumerate(self.nodes):
            for a in dict.fromkeys(node.args):
                self.users[a].append(user)
        self.arrays: list[tuple[str, str]] = []
        self.scratch: dict[str, int] = {}  # numbers a sequence
        self.aliases: dict[str, str] = {}  # outputs that are the same node as another one
        self.pointer: dict[int, str] = {}  # where a node in memory lies
        self.stores: dict[int, list[str]] = {}  # all places that take a node: states and outputs
        self.once: list[str] = []  # C to run before the first step
        self.each: list[str] = []  # and at the beginning of each
        self.last: list[str] = []  # and after the last one, where all have met
        self._sources()
        self._states(single)
        self._outputs()
        for k, node in enumerate(self.nodes):
            if node.op == "linear" or (not node.source and self._needs_memory(k)):
                own = [target for target in self.stores.get(k, ()) if not summed(target)]
                self.pointer[k] = own[0] if own else self.room(k)

    def array(self, kind: str, name: str) -> str:
        """The array of that kind and name; the same one for the same names."""
        if (kind, name) not in self.arrays:
            self.arrays.append((kind, name))
        return f"J->p[{self.arrays.index((kind, name))}]"

    def room(self, k: int) -> str:
        """New memory for a node, a row for each sequence."""
        self.scratch[str(k)] = self.nodes[k].width
        self.each.append(f"real *m{k} = {self.array('scratch', str(k))};")
        return f"m{k}"

    def _sources(self) -> None:
        for k, node in enumerate(self.nodes):
            if node.op in ("input", "context", "vector"):
                step = f" + t * B * {node.width}" if node.op == "input" else ""
                self.each.append(f"real *x{k} = {self.array(node.op, node['name'])}{step};")
                self.pointer[k] = f"x{k}"

    def _states(self, single: bool) -> None:
        for index, result in enumerate(self.graph.next_states):
            base, size = self.array("state", str(index)), f"B * {self.nodes[result].width}"
            first, slots = self.array("initial", str(index)), f"J->slots[{index}]"
            if single:
                self.each += [f"real *before{index} = {first};", f"real *after{index} = {base};"]
            else:
                final = self.array("final", str(index))
                self.once.append(f"if (me == 0) memcpy({base}, {first}, {size} * sizeof(real));")
                # A copy: whoever zeroes a state that was returned must not zero an output with it.
                last = f"{base} + T % {slots} * {size}"
                self.last.append(f"if (me == 0) memcpy({final}, {last}, {size} * sizeof(real));")
                self.each += [
                    f"real *before{index} = {base} + s % {slots} * {size};",
                    f"real *after{index} = {base} + (s + 1) % {slots} * {size};",
                ]
            self.stores.setdefault(result, []).append(f"after{index}")
        for k, node in enumerate(self.nodes):
            if node.op == "state":
                self.pointer[k] = f"before{node['index']}"

    def _outputs(self) -> None:
        seen: dict[tuple[int, bool], str] = {}
        for number, (name, k) in enumerate(self.graph.outputs.items()):
            total = name.startswith(SUMMED)
            if (k, total) in seen:
                self.aliases[name] = seen[k, total]
                continue
            seen[k, total] = name
            array, size = self.array("output", name), f"B * {self.nodes[k].width}"
            target = f"{'sum' if total else 'out'}{number}"
            self.each.append(f"real *{target} = {array}{'' if total else f' + t * {size}'};")
            self.stores.setdefault(k, []).append(target)

    def _needs_memory(self, k: int) -> bool:
        if self.nodes[k].op == "slice":
            return False
        users = list(self.users[k])
        for user in users:  # grows: a slice is no value of its own, who reads it reads this one
            if self.nodes[user].op == "slice":
                users += self.users[user]
                if user in self.stores:
                    return True
            elif self.nodes[user].op == "linear" or self.home[user] != self.home[k]:
                return True
        return False

    def root(self, k: int) -> tuple[int, int]:
        """The node that a slice (of a slice) is cut from, and where the cut begins."""
        offset = 0
        while self.nodes[k].op == "slice":
            offset += self.nodes[k]["start"]
            k = self.nodes[k].args[0]
        return k, offset

    def row(self, k: int) -> str:
        """A pointer to the numbers of a node in memory, for sequence b."""
        root, offset = self.root(k)
        shared = self.nodes[root].op == "vector"
        sequence = "" if shared else f" + b * {self.nodes[root].width}"
        return f"({self.pointer[root]}{sequence} + {offset})"

    @property
    def loose(self) -> list[int]:
        """Results that no stage computes: sources, and slices of whatever is in memory."""
        return [k for k in self.stores if self.nodes[k].source or self.nodes[k].op == "slice"]


def summed(target: str) -> bool:
    return target.startswith("sum")


def put(target: str, row: str, value: str) -> str:
    """C that stores a vector of m numbers at a row of a target, or adds it to what is there."""
    return f"store({row}, {f'load({row}, m) + ' if summed(target) else ''}{value}, m);"


def number(value: float) -> str:
    """A constant in C."""
    if value != value:
        return '((real)__builtin_nan(""))'
    if value in (float("inf"), float("-inf")):
        return f"({'-' if value < 0 else ''}(real)__builtin_inf())"
    return f"((real){float(value)!r})"


def expression(node: Node, args: list[str]) -> str:
    """An elementwise operation on vectors in C."""
    attributes = {name: number(value) for name, value in node.attributes.items()}
    return OPS[node.op].c.format(*args, **attributes)
