"""The arrays that a program takes, and where in them the values of a step are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from metarnn.cells import Map
from metarnn.engines.codegen.dataflow import SUMMED, Use, aliases
from metarnn.engines.codegen.names import Names
from metarnn.engines.codegen.statements import Accumulate, Address, Operand, Statement, Store
from metarnn.engines.cpu.statements import CopyRow, Pointer, copy_state
from metarnn.engines.cpu.workspace import ArraySize
from metarnn.graph import Graph, Stage

Key = tuple[str, str]


class Target(NamedTuple):
    """A place that takes a node: a state, or an output, which may be a sum over the steps."""

    pointer: str
    summed: bool = False


class Arrays:
    """The arrays of a graph's loop.

    A node is in memory if a product reads it or another stage does; what else a stage computes
    stays in registers.
    """

    def __init__(self, graph: Graph, stages: list[Stage], names: Names, *, single: bool) -> None:
        self.graph, self.nodes, self.names, self.flow = graph, graph.nodes, names, names.flow
        self.stage = {k: s for s, st in enumerate(stages) for k in (*st.products, *st.rest)}
        # Of each array, in the order of the pointers, the C constant of its place, and its shape.
        self.titles: dict[Key, str] = {}
        self.shapes: dict[Key, str] = {}
        self.workspace: dict[Key, ArraySize] = {}
        self.aliases = aliases(graph, lambda name: name.startswith(SUMMED))
        self.pointer: dict[int, str] = {}  # to the rows of a node in memory, at the current step
        self.targets: dict[int, list[Target]] = {}  # all places that take a node
        self.before: list[Statement] = []  # the first step
        self.each: list[Statement] = []  # at the beginning of each
        self.after: list[Statement] = []  # the last one, where all threads are done
        self._sources()
        self._states(single)
        self._outputs()
        for k, node in enumerate(self.nodes):
            if node.op == "linear" or (not node.source and self._needs_memory(k)):
                places = [t.pointer for t in self.targets.get(k, ()) if not t.summed]
                self.pointer[k] = places[0] if places else self.allocate(k)

    def array(self, kind: str, name: str, shape: str = "", title: str = "") -> str:
        """The pointer to an array in C; the same one for the same kind and name."""
        key = (kind, name)
        if key not in self.titles:
            self.titles[key] = self.names.unique((title or self.names.array(kind, name)).upper())
            self.shapes[key] = shape
        return f"job->arrays[{self.titles[key]}]"

    def weight(self, name: str, m: Map) -> str:
        return self.array("weight", name, f"[{m.outputs}, {m.inputs}]")

    def bias(self, name: str, m: Map) -> str:
        return self.array("bias", name, f"[{m.outputs}]")

    def allocate(self, k: int) -> str:
        """New workspace for a node, a row for each sequence."""
        node, key = self.nodes[k], ("workspace", str(k))
        name = self.names.product(k) if node.op == "linear" else f"{node.op}_{k}"
        self.workspace[key] = ArraySize(per_sequence=node.width)
        return self._point(f"{name}_t", self.array(*key, f"[B, {node.width}]", name))

    def address(self, k: int) -> Address:
        """Where a node's row is, of one that is in memory."""
        root, start, _ = self.flow.slice(k)
        node = self.nodes[root]
        return Address(self.pointer[root], node.width, start, shared=node.op == "vector")

    def loaded(self, k: int) -> str:
        """A name for a node's value where it is read from memory."""
        root, start, width = self.flow.slice(k)
        pointer = self.pointer[root]
        stem = pointer[:-2] if pointer.endswith("_t") else pointer.replace("_next", "_new")
        block = start // width if start % width == 0 else f"from_{start}"
        return stem if width == self.nodes[root].width else f"{stem}_{block}"

    def put(self, target: Target, width: int, start: int, value: Operand) -> Statement:
        """Store a vector of a node, or add it to a sum."""
        address = Address(target.pointer, width, start)
        return Accumulate(address, value) if target.summed else Store(address, value)

    def fill(self, k: int, target: Target) -> Statement:
        """Bring a node's row, or a row of constants, to a place in a target."""
        return self.copy(k, Address(target.pointer, self.nodes[k].width), add=target.summed)

    def copy(self, k: int, to: Address, *, add: bool = False) -> Statement:
        node = self.nodes[k]
        source = node["value"] if node.op == "number" else self.address(k)
        return CopyRow(to, source, node.width, add)

    @property
    def uncomputed(self) -> Iterable[tuple[int, Target]]:
        """Results that no stage computes: sources, and slices of whatever is in memory."""
        for k, targets in self.targets.items():
            if self.nodes[k].source or self.nodes[k].op == "slice":
                yield from ((k, target) for target in targets)

    def _point(self, name: str, array: str, offset: str = "") -> str:
        name = self.names.unique(name)
        self.each.append(Pointer(name, array, offset))
        return name

    def _sources(self) -> None:
        for k, node in enumerate(self.nodes):
            if node.op in ("input", "context", "vector"):
                lead = {"input": "T, B, ", "context": "B, ", "vector": ""}[node.op]
                name, n = node["name"], node.width
                array = self.array(node.op, name, f"[{lead}{n}]")
                offset = f"t * B * {n}" if node.op == "input" else ""
                self.pointer[k] = self._point(f"{self.names.array(node.op, name)}_t", array, offset)

    def _states(self, single: bool) -> None:
        pointers: list[str] = []
        for index, result in enumerate(self.graph.next_states):
            key, state, n = str(index), self.names.states[index], self.nodes[result].width
            array = self.array("state", key, f"[B, {n}]" if single else f"[slots, B, {n}]")
            initial = self.array("initial", key, f"[B, {n}]")
            slots, size = f"job->slots[{index}]", f"B * {n}"
            if single:
                places = [(initial, ""), (array, "")]
            else:
                final = self.array("final", key, f"[B, {n}]")
                self.before.append(copy_state(array, initial, size))
                # A copy: whoever zeroes a state that was returned must not zero an output with it.
                last = f"{array} + T % {slots} * {size}"
                self.after.append(copy_state(final, last, size))
                places = [(array, f"s % {slots} * {size}"), (array, f"(s + 1) % {slots} * {size}")]
            pointers.append(self._point(f"{state}_t", *places[0]))
            self.targets.setdefault(result, []).append(
                Target(self._point(f"{state}_next", *places[1]))
            )
        for k, node in enumerate(self.nodes):
            if node.op == "state":
                self.pointer[k] = pointers[node["index"]]

    def _outputs(self) -> None:
        for name, k in self.graph.outputs.items():
            if name not in self.aliases:
                n, summed = self.nodes[k].width, name.startswith(SUMMED)
                array = self.array("output", name, f"[B, {n}]" if summed else f"[T, B, {n}]")
                pointer = self._point(
                    f"{self.names.array('output', name)}_{'sum' if summed else 't'}",
                    array,
                    "" if summed else f"t * B * {n}",
                )
                self.targets.setdefault(k, []).append(Target(pointer, summed))

    def _needs_memory(self, k: int) -> bool:
        def in_registers(k: int, use: Use) -> bool:
            here = self.stage.get(use.user) == self.stage[k]
            return here and self.nodes[use.user].op not in ("slice", "linear")

        return self.nodes[k].op != "slice" and self.flow.needs_memory(k, in_registers)
