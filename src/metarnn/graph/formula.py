"""A step as formulas a person recognises: as text, and in LaTeX.

One line a state, an output, a gate and anything used twice. A slice of a product is shown as the
product with that gate's rows of the matrix, W_hh[2] h for the second gate.
"""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cached_property

from metarnn.graph.check import check_graph
from metarnn.graph.derive import sink_slices
from metarnn.graph.graph import Graph, Node
from metarnn.graph.ops import OPS
from metarnn.graph.roles import Roles

SUM, PRODUCT, APPLIED, ATOM = range(4)  # how tightly an expression holds together
LONG = 12  # operations in one line from which on a part gets a line of its own
LATEX_FUNCTIONS = ("tanh", "exp", "max", "min", "log", "sin", "cos")  # that LaTeX sets itself


def text(graph: Graph) -> str:
    """The formulas of a step, one a line.

    >>> print(text(trace_cell(Elman(3, 2))))
    h_t = tanh(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)
    y_t = h_t
    """
    return "\n".join(f"{left} = {right}" for left, right in Formulas(graph).lines())


def latex(graph: Graph) -> str:
    """The formulas of a step as an `aligned` environment.

    >>> print(latex(trace_cell(Elman(3, 2))))
    \\begin{aligned}
      h_{t} &= \\tanh\\left(W_{ih} x_{t} + b_{ih} + W_{hh} h_{t-1} + b_{hh}\\right) \\\\
      y_{t} &= h_{t}
    \\end{aligned}
    """
    lines = [f"  {left} &= {right}" for left, right in LatexFormulas(graph).lines()]
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def state_names(graph: Graph) -> list[str]:
    """h and c, as in the LSTM, for one and two states; s0, s1, … for more."""
    count = len(graph.next_states)
    return ["h", "c"][:count] if count <= 2 else [f"s{k}" for k in range(count)]


class Formulas:
    """The lines of a step, and how expressions are written as text."""

    times = " ⊙ "

    def __init__(self, graph: Graph) -> None:
        self.graph = sink_slices(check_graph(graph))
        self.nodes = self.graph.nodes
        self.states = state_names(self.graph)

    def lines(self) -> list[tuple[str, str]]:
        """(left side, right side) of each formula, in an order in which they can be computed."""
        lines = []
        for k in sorted({*self.named, *self.graph.next_states}):
            if k in self.named:
                lines.append((self.named[k], self.write(k, SUM, top=True)))
            for state, result in zip(self.states, self.graph.next_states, strict=True):
                left = self.variable(state, "t")
                if result == k and self.named.get(k) != left:
                    lines.append((left, self.write(k, SUM)))
        for name, k in self.graph.outputs.items():
            lines.append((self.variable(name, "t"), self.write(k, SUM)))
        return lines

    # --- which values get a name ------------------------------------------------------------

    @cached_property
    def named(self) -> dict[int, str]:
        """The left side of every node that has a line of its own."""
        nodes, roles = self.nodes, Roles(self.graph)
        found: dict[int, str] = {}
        for state, k in reversed(list(zip(self.states, self.graph.next_states, strict=True))):
            if not nodes[k].source:
                found[k] = self.variable(state, "t")
        outputs = Counter(self.graph.outputs.values())
        uses = Counter(a for node in nodes for a in node.args) + outputs
        # Of what stands in the same line: how many operations, and whether a product is there.
        size, product = [0] * len(nodes), [False] * len(nodes)
        letters: dict[int, str] = {}
        for k, node in enumerate(nodes):
            inline = [a for a in node.args if a not in found and a not in letters]
            counts = not node.source and node.op != "slice"
            size[k] = counts + sum(size[a] for a in inline)
            product[k] = node.op == "linear" or any(product[a] for a in inline)
            shared = uses[k] > 1 and not node.source and node.op not in ("slice", "linear")
            gate = _bends(node) and (product[k] or size[k] > 3)
            only_output = outputs[k] == uses[k] == 1
            if k not in found and not only_output and (shared or gate or size[k] >= LONG):
                letters[k] = roles.letter(k)
        taken = {*self.states, *self.graph.outputs}
        taken |= {name for op in ("input", "context", "vector") for name in self.graph.named(op)}
        count = Counter(letters.values())
        numbers = {letter: itertools.count(1) for letter in count}
        for k, letter in letters.items():
            several = count[letter] > 1 or letter == "u" or letter in taken
            numbered = (f"{letter}{number}" for number in numbers[letter])
            name = next(n for n in numbered if n not in taken) if several else letter
            taken.add(name)
            found[k] = self.variable(name, "t")
        return found

    # --- expressions ------------------------------------------------------------------------

    def write(self, k: int, least: int, top: bool = False) -> str:
        """Node k, in brackets if it holds together less tightly than `least`."""
        if k in self.named and not top:
            return self.named[k]
        made, strength = self.expression(self.nodes[k])
        return made if strength >= least else self.brackets(made)

    def expression(self, node: Node) -> tuple[str, int]:
        op, args = node.op, node.args
        if op == "number":
            return self.number(node["value"]), ATOM if node["value"] >= 0 else SUM
        if op == "state":
            return self.variable(self.states[node["index"]], "t-1"), ATOM
        if op == "input":
            window = self.graph.window
            when = f"t-{window - 1}:t" if window > 1 and node["name"] == "x" else "t"
            return self.variable(node["name"], when), ATOM
        if op in ("vector", "context"):
            return self.variable(node["name"]), ATOM
        if op == "linear":
            return self.product(node, "")
        if op == "slice":
            start, stop, whole = node["start"], node["stop"], self.nodes[args[0]]
            if whole.op == "linear" and args[0] not in self.named:
                return self.product(whole, self.rows(whole, start, stop))
            return self.index(self.write(args[0], ATOM), f"{start}:{stop}"), ATOM
        if op == "add":
            return f"{self.write(args[0], SUM)} + {self.write(args[1], SUM)}", SUM
        if op == "sub":
            negative = self.nodes[args[0]].op == "number" and self.nodes[args[0]]["value"] == 0
            first = "" if negative else f"{self.write(args[0], SUM)} "
            return f"{first}-{'' if negative else ' '}{self.write(args[1], PRODUCT)}", SUM
        if op == "mul":
            numbers = any(self.nodes[a].op == "number" for a in args)
            if numbers and self.nodes[args[1]].op == "number":
                args = args[::-1]
            # A factor of 1 is there for its width only.
            if numbers and self.nodes[args[0]]["value"] == 1:
                return self.write(args[1], ATOM), ATOM
            sign = " " if numbers else self.times
            return f"{self.write(args[0], PRODUCT)}{sign}{self.write(args[1], PRODUCT)}", PRODUCT
        if op == "div":
            return self.quotient(*args)
        inside = [self.write(a, SUM) for a in args]
        if op == "greater":
            return self.indicator(*inside), ATOM
        if op == "join":
            return self.joined(inside), ATOM
        if op == "identity":
            return self.write(args[0], ATOM), ATOM
        return self.call(node, inside), ATOM

    def rows(self, linear: Node, start: int, stop: int) -> str:
        """The number of the gate that these rows of a map are, counted from 1, or the rows."""
        offset = 0
        for number, gate in enumerate(self.graph.maps[linear["map"]].gates, 1):
            if (start, stop) == (offset, offset + gate):
                return str(number)
            offset += gate
        return f"{start}:{stop}"

    def product(self, node: Node, rows: str) -> tuple[str, int]:
        name, inputs = node["map"], self.graph.maps[node["map"]].inputs
        columns = (node["start"], node["stop"])
        part = "" if columns == (0, inputs) else f"{columns[0]}:{columns[1]}"
        matrix = self.weight("W", name, rows, part)
        row = self.write(node.args[0], ATOM)
        if not node["bias"]:
            return f"{matrix} {row}", APPLIED
        return f"{matrix} {row} + {self.weight('b', name, rows)}", SUM

    # --- how it looks as text ---------------------------------------------------------------

    def variable(self, name: str, when: str = "") -> str:
        if not when:
            return name
        return f"{name}_{when}" if when == "t" else f"{name}_{{{when}}}"

    def weight(self, letter: str, name: str, rows: str, columns: str = "") -> str:
        part = f"[{rows}]" if rows else ""
        part = f"[{rows or ':'}, {columns}]" if columns else part
        return f"{letter}_{name}{part}"

    def number(self, value: float) -> str:
        return "∞" if value == float("inf") else f"{value:.6g}".replace("-inf", "-∞")

    def brackets(self, inside: str) -> str:
        return f"({inside})"

    def index(self, row: str, span: str) -> str:
        return f"{row}[{span}]"

    def quotient(self, a: int, b: int) -> tuple[str, int]:
        return f"{self.write(a, PRODUCT)} / {self.write(b, ATOM)}", PRODUCT

    def indicator(self, a: str, b: str) -> str:
        return f"[{a} > {b}]"

    def joined(self, rows: list[str]) -> str:
        return f"[{'; '.join(rows)}]"

    def call(self, node: Node, args: list[str]) -> str:
        attributes = {name: self.number(value) for name, value in node.attributes.items()}
        return OPS[node.op].formula.format(*args, **attributes)


def _bends(node: Node) -> bool:
    """Whether a node is a function of one value, or a softmax: a gate, of a product."""
    return node.op == "softmax" or (node.elementwise and OPS[node.op].arity == 1)


class LatexFormulas(Formulas):
    times = r" \odot "

    def variable(self, name: str, when: str = "") -> str:
        letter, _, rest = name.partition("_")
        if not letter:  # a name that starts with an underscore
            letter, rest = name, ""
        digits = letter.lstrip("".join(c for c in letter if not c.isdigit()))
        letter = letter[: len(letter) - len(digits)]
        below = ", ".join(filter(None, [self.word(digits), self.word(rest), when]))
        letter = self.word(letter)
        return f"{letter}_{{{below}}}" if below else letter

    def word(self, name: str) -> str:
        name = name.replace("_", r"\_")
        return name if len(name) <= 1 or name.isdigit() else rf"\mathrm{{{name}}}"

    def weight(self, letter: str, name: str, rows: str, columns: str = "") -> str:
        name = name.replace("_", r"\_")
        above = f"[{rows or ':'}, {columns}]" if columns else f"({rows})" if rows else ""
        return f"{letter}_{{{name}}}" + (f"^{{{above}}}" if above else "")

    def number(self, value: float) -> str:
        written = super().number(value).replace("∞", r"\infty")
        base, e, power = written.partition("e")
        return rf"{base} \cdot 10^{{{int(power)}}}" if e else written

    def brackets(self, inside: str) -> str:
        return rf"\left({inside}\right)"

    def index(self, row: str, span: str) -> str:
        return rf"{row}{{}}_{{[{span}]}}"

    def quotient(self, a: int, b: int) -> tuple[str, int]:
        return rf"\frac{{{self.write(a, SUM)}}}{{{self.write(b, SUM)}}}", ATOM

    def indicator(self, a: str, b: str) -> str:
        return rf"\left[{a} > {b}\right]"

    def joined(self, rows: list[str]) -> str:
        return rf"\left[{'; '.join(rows)}\right]"

    def call(self, node: Node, args: list[str]) -> str:
        attributes = {name: self.number(value) for name, value in node.attributes.items()}
        op = OPS[node.op]
        if op.latex:
            return op.latex.format(*args, **attributes)
        function, _, inside = op.formula.format(*args, **attributes).partition("(")
        name = function.replace("_", r"\_")
        plain = function in LATEX_FUNCTIONS
        return (rf"\{name}" if plain else rf"\operatorname{{{name}}}") + self.brackets(inside[:-1])
