"""A unit in a few lines of text, and the graph it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property

from metarnn.cells import Map, check
from metarnn.graph import Builder, Graph, GraphCell

ACTIVATIONS = ("sigmoid", "tanh", "relu", "identity", "softplus")
# How many values each operation takes; None for any number from one on.
ARITY = {"lin": None, "sum": None, "mean": None, "prod": 2, "blend": 3, "act": 1}
STATES = ("h", "c")

_LINE = re.compile(r"\s*([A-Za-z_]\w*'?)\s*=\s*(\w+)\((?:(lin)\()?([^()]*)\)(\)?)\s*")


@dataclass(frozen=True)
class Operation:
    """One line: name = op(args), with an activation where op is `lin` or `act`."""

    name: str
    op: str
    args: tuple[str, ...]
    act: str = ""

    def __str__(self) -> str:
        args = ", ".join(self.args)
        if self.op == "act":
            return f"{self.name} = {self.act}({args})"
        inner = f"{self.op}({args})"
        plain = self.op != "lin" or self.act == "identity"
        return f"{self.name} = {inner if plain else f'{self.act}({inner})'}"


@dataclass(frozen=True)
class Genotype:
    """A unit as text: x, the old states h and c, and what is made of them, up to h' and c'.

    >>> gru = Genotype.parse('''
    ...     r = sigmoid(lin(x, h))
    ...     z = sigmoid(lin(x, h))
    ...     s = prod(r, h)
    ...     n = tanh(lin(x, s))
    ...     h' = blend(z, h, n)
    ... ''')
    >>> gru.cell(8, 16)
    GraphCell(input_size=8, hidden_size=16, nodes=...)

    lin(a, b, …) is W_a a + W_b b + … + b, sum and prod are elementwise, blend(z, a, b) is
    z ⊙ a + (1 - z) ⊙ b, mean(a, b, …) is (a + b + …)/n. All values are as wide as the state, but
    for x, which is therefore read by `lin` alone.
    """

    operations: tuple[Operation, ...]
    bias: bool = True

    def __post_init__(self) -> None:
        known = {"x", *STATES}
        for each in self.operations:
            check.one_of(f"operation of {each.name}", each.op, ARITY)
            if each.op in ("lin", "act"):
                check.one_of(f"activation of {each.name}", each.act, ACTIVATIONS)
            wanted = ARITY[each.op]
            if not each.args or (wanted is not None and len(each.args) != wanted):
                number = "at least one value" if wanted is None else f"{wanted} values"
                check.refuse("operation", str(each), f"{number} for {each.op}")
            for arg in each.args:
                if arg not in known or (arg == "x" and each.op != "lin"):
                    may = sorted(known - (set() if each.op == "lin" else {"x"}))
                    check.refuse("operation", str(each), f"values among {', '.join(may)}")
            if each.name in known:
                check.refuse("operation", str(each), "a name not yet taken")
            known.add(each.name)
        if "h'" not in known:
            check.refuse("operations", [o.name for o in self.operations], "one called h'")
        if "c'" not in known and any("c" in o.args for o in self.operations):
            check.refuse("operations", [o.name for o in self.operations], "c', since c is read")

    @classmethod
    def parse(cls, text: str | Iterable[str], bias: bool = True) -> Genotype:
        """From lines `name = op(args)`; also parted by semicolons."""
        lines = re.split(r"[;\n]", text) if isinstance(text, str) else list(text)
        return cls(tuple(_parsed(line) for line in lines if line.strip()), bias)

    def __str__(self) -> str:
        return "\n".join(map(str, self.operations))

    @property
    def lines(self) -> list[str]:
        """Plain data, for a file; `parse` reads it."""
        return [str(each) for each in self.operations]

    @cached_property
    def states(self) -> tuple[str, ...]:
        """h, and c if it is read."""
        return STATES if any("c" in each.args for each in self.operations) else STATES[:1]

    @property
    def matrices(self) -> int:
        """How many matrices its maps are made of, one for each value that a `lin` reads.

        An LSTM has 8, a GRU 6: what its parameters grow with, at any width.
        """
        return sum(len(each.args) for each in self.operations if each.op == "lin")

    def pruned(self) -> Genotype:
        """Without what does not reach the next h, and without c if nothing that does reads it."""
        made = {each.name: each for each in self.operations}
        needed, todo = set(), ["h'"]
        while todo:
            name = todo.pop()
            if name in needed:
                continue
            needed.add(name)
            todo += made[name].args if name in made else ()
            if name == "c":
                todo.append("c'")
        kept = tuple(each for each in self.operations if each.name in needed)
        return Genotype(kept, self.bias)

    @property
    def useful(self) -> bool:
        """Whether the next h depends on the input and on the past, and ever leaves 0."""
        read = {arg for each in self.pruned().operations for arg in each.args}
        return "x" in read and not read.isdisjoint(STATES) and self._wakes()

    def _wakes(self) -> bool:
        """Whether h becomes anything but 0, from states of 0: h' = prod(a, h) never does."""
        zero = set(self.states)
        while True:
            before = frozenset(zero)
            for each in self.operations:
                if self._stays_zero(each, zero):
                    zero.add(each.name)
            zero = {state for state in self.states if f"{state}'" in zero}
            if "h" not in zero:
                return True
            if zero == before:
                return False

    def _stays_zero(self, each: Operation, zero: Set[str]) -> bool:
        args = [arg in zero for arg in each.args]
        if each.op == "lin":
            return all(args) and not self.bias and each.act not in ("sigmoid", "softplus")
        if each.op == "act":
            return args[0] and each.act not in ("sigmoid", "softplus")
        if each.op == "prod":
            return any(args)
        if each.op == "blend":
            z, a, b = args
            return b and (z or a)
        return all(args)

    def graph(self, input_size: int, hidden_size: int) -> Graph:
        """The unit as a graph, for these widths."""
        return _Maker(self, input_size, hidden_size).graph()

    def cell(self, input_size: int, hidden_size: int) -> GraphCell:
        return GraphCell(self.graph(input_size, hidden_size))

    def readers(self) -> dict[str, list[str]]:
        """For each value that a `lin` reads, those that do: the gates of one map."""
        found: dict[str, list[str]] = {}
        for each in self.operations:
            if each.op == "lin":
                for arg in each.args:
                    found.setdefault(arg, []).append(each.name)
        return found


def map_name(source: str) -> str:
    """What the map is called that reads a value: ih and hh for x and h, as in torch.nn."""
    short = {"x": "ih", "h": "hh", "c": "ch"}
    return short.get(source) or source.replace("'", "_new") + "_h"


def _parsed(line: str) -> Operation:
    match = _LINE.fullmatch(line)
    if match is None or bool(match[3]) != bool(match[5]):
        check.refuse(
            "line", line.strip(), "one such as `i = sigmoid(lin(x, h))` or `s = sum(a, b)`"
        )
    name, outer, inner, arguments, _ = match.groups()
    args = tuple(arg.strip() for arg in arguments.split(","))
    if inner:
        return Operation(name, "lin", args, outer)
    if outer in ACTIVATIONS:
        return Operation(name, "act", args, outer)
    return Operation(name, outer, args, "identity" if outer == "lin" else "")


class _Maker:
    """Builds the graph: one map a value that is read, its gates the `lin`s that read it."""

    def __init__(self, genotype: Genotype, input_size: int, hidden_size: int) -> None:
        self.genotype, self.H = genotype, check.size("hidden_size", hidden_size)
        self.readers = genotype.readers()
        # The bias of a `lin` is that of the map of its first value.
        first = {each.args[0] for each in genotype.operations if each.op == "lin"}
        maps = {
            map_name(source): Map(
                input_size if source == "x" else self.H,
                (self.H,) * len(gates),
                genotype.bias and source in first,
                recurrent=source != "x",
            )
            for source, gates in self.readers.items()
        }
        self.builder = Builder(maps)
        self.place = {"x": self.builder.add("input", width=input_size, name="x")}
        for k, state in enumerate(genotype.states):
            self.place[state] = self.builder.add("state", width=self.H, index=k)

    def graph(self) -> Graph:
        for each in self.genotype.operations:
            self.place[each.name] = self._node(each)
        following = [self.place[f"{state}'"] for state in self.genotype.states]
        return self.builder.graph(following, {"y": following[0]})

    def _node(self, each: Operation) -> int:
        add = self.builder.add
        args = [self.place[arg] for arg in each.args]
        if each.op == "lin":
            value = self._sum(self._gates(each))
            return value if each.act == "identity" else add(each.act, value)
        if each.op == "act":
            return add(each.act, *args)
        if each.op == "prod":
            return add("mul", *args)
        if each.op == "blend":
            z, a, b = args
            rest = add("sub", self.builder.number(1), z)
            return add("add", add("mul", z, a), add("mul", rest, b))
        total = self._sum(args)
        if each.op == "mean":
            return add("mul", total, self.builder.number(1 / len(args)))
        return total

    def _gates(self, each: Operation) -> Iterator[int]:
        for source in each.args:
            name, gates = map_name(source), self.readers[source]
            m, k = self.builder.maps[name], gates.index(each.name)
            whole = self.builder.add(
                "linear", self.place[source], map=name, start=0, stop=m.inputs, bias=m.bias
            )
            if len(gates) == 1:
                yield whole
            else:
                yield self.builder.add("slice", whole, start=k * self.H, stop=(k + 1) * self.H)

    def _sum(self, nodes: Iterable[int]) -> int:
        first, *others = nodes
        for other in others:
            first = self.builder.add("add", first, other)
        return first
