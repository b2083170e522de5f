"""What generated code calls its arrays and values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import copy

from metarnn.engines.codegen.dataflow import Dataflow
from metarnn.graph.formula import state_names
from metarnn.graph.roles import Roles

GATES = "fiogrz"  # the letters that papers have for gates


class Names:
    """Identifiers of one program, each of its own, besides those that are `reserved`.

    Maps, vectors and the like keep the names that the graph has for them if `readable`; otherwise
    they are numbered.
    """

    def __init__(
        self, flow: Dataflow, *, readable: bool, backward: bool, reserved: Iterable[str]
    ) -> None:
        self.flow, self.nodes, self.readable, self.backward = flow, flow.nodes, readable, backward
        self.states = [f"grad_{s}" if backward else s for s in state_names(flow.graph)]
        self._taken = {*reserved}
        self._numbers: dict[tuple[str, str], int] = {}
        self._roles = Roles(flow.graph)

    def unique(self, name: str) -> str:
        """Return the name as an identifier, with a number if it is another one's already."""
        name = stem = re.sub(r"\W", "_", name, flags=re.ASCII)
        number = 1
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return name

    def scope(self) -> Names:
        """Names of a block, different from one another and from those outside."""
        inner = copy(self)
        inner._taken = {*self._taken}
        return inner

    def array(self, kind: str, name: str) -> str:
        """A name for an array, which may be another one's too."""
        match kind:
            case "input":
                return self._input(name)
            case "output":
                return self._output(name)
            case "state":
                return f"{self.states[int(name)]}_states"
            case "initial" | "final":
                return f"{self.states[int(name)]}_{kind}"
            case "weight" | "bias":
                return f"{kind}_{self.map(name)}"
            case "gradient":
                return f"grad_{self.array(*name.split('.', 1))}"
            case "workspace":
                return name
            case _:
                return self._own(kind, name)

    def map(self, name: str) -> str:
        return name if self.readable else str(self._number("map", name))

    def value(self, k: int) -> str:
        """A name for a value: of a new state, a gate, or else of its operation."""
        if k in self.flow.graph.next_states:
            return f"{self.states[self.flow.graph.next_states.index(k)]}_new"
        letter = "" if self.backward else self._roles.letter(k)
        return letter if letter and letter in GATES else f"{self.nodes[k].op}_{k}"

    def product(self, k: int) -> str:
        """The name of a product's result."""
        node = self.nodes[k]
        stem = "grad_argument" if node.attributes.get("transposed") else "product"
        return f"{stem}_{self.map(node['map'])}"

    def _own(self, kind: str, name: str) -> str:
        head, _, rest = name.partition(".")
        if rest and head == "columns":  # masks on the inputs of a map
            return f"columns_{self.map(rest)}"
        return f"{kind}_{name if self.readable else self._number(kind, name)}"

    def _number(self, kind: str, name: str) -> int:
        of_kind = sum(k == kind for k, _ in self._numbers)
        return self._numbers.setdefault((kind, name), of_kind)

    def _input(self, name: str) -> str:
        head, _, rest = name.partition(".")
        if name in ("x", "alive", "resets") or (rest and head == "zoneout"):
            return name
        inputs = self.flow.graph.named("input")
        match head if rest else "":
            case "hoisted":
                return _numbered("drive", name, inputs)
            case "before":
                return f"{state_names(self.flow.graph)[int(rest)]}_before"
            case "product":
                return f"product_{self._map_of_product(rest)}"
            case "grad":
                return _numbered("grad_output", name, inputs)
            case _:
                return self._own("input", name)

    def _output(self, name: str) -> str:
        head, _, rest = name.partition(".")
        match head if rest else "":
            case "dinput" | "dvector" | "dcontext":
                return f"grad_{self.array(head[1:], rest)}"
            case "product" | "argument":
                return f"{head}_{self._map_of_product(rest)}"
            case "dproduct":
                return f"grad_product_{self._map_of_product(rest)}"
            case "kept":
                return _numbered("output", name, self.flow.graph.outputs)
            case _:
                return "y" if name == "y" else self._own("output", name)

    def _map_of_product(self, number: str) -> str:
        """The map of product k, of which the graph computes the result or reads the adjoint."""
        outputs = self.flow.graph.outputs
        k = outputs.get(f"product.{number}", outputs.get(f"dproduct.{number}"))
        if k is not None:
            linear = [u for u in (k, *self.flow.users[k]) if self.nodes[u].op == "linear"]
            if len(linear) == 1:
                return self.map(self.nodes[linear[0]]["map"])
        return number


def _numbered(stem: str, name: str, among: Iterable[str]) -> str:
    """The stem, with the name's number if others are of its kind."""
    kind, _, number = name.partition(".")
    others = [other for other in among if other.startswith(f"{kind}.") and other != name]
    return f"{stem}_{number}" if others else stem
