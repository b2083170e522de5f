"""A step that is linear in its state, taken apart: s' = a ⊙ s + b."""

from __future__ import annotations

from dataclasses import dataclass

from metarnn.graph.graph import Builder, Graph, Node


class NotAffine(ValueError):
    """A step is not linear in its state, unit by unit."""


@dataclass(frozen=True)
class _Sum:
    """c · s + d, with one coefficient for each state it depends on; None stands for zero."""

    coefficients: dict[int, int]
    rest: int | None


def affine(graph: Graph) -> Graph:
    """The same step with a and b of each state as outputs `a.k` and `b.k`: s'_k = a_k ⊙ s_k + b_k.

    What they and the step need is there once. Raises NotAffine where a state enters any other way,
    or where one state enters another.
    """
    builder = Builder(graph.maps)
    sums: list[_Sum] = []
    wanted = graph.needed(graph.next_states)
    for k, node in enumerate(graph.nodes):
        sums.append(_rule(builder, node, [sums[a] for a in node.args]) if k in wanted
                    else _Sum({}, None))  # fmt: skip
    outputs: dict[str, int] = {}
    for i, k in enumerate(graph.next_states):
        if not sums[k].coefficients.keys() <= {i}:
            raise NotAffine(f"state {i} depends on another state")
        width = graph.nodes[k].width
        outputs[f"a.{i}"] = sums[k].coefficients.get(i, builder.number(0, width))
        rest = sums[k].rest
        outputs[f"b.{i}"] = builder.number(0, width) if rest is None else rest
    place: list[int] = []
    for node in graph.nodes:
        place.append(builder.copy(node, tuple(place[a] for a in node.args)))
    outputs |= {name: place[k] for name, k in graph.outputs.items()}
    return builder.graph([place[k] for k in graph.next_states], outputs, graph.window)


def _rule(builder: Builder, node: Node, args: list[_Sum]) -> _Sum:
    def known(part: int | None) -> int:
        return builder.number(0) if part is None else part

    def each(op: str, a: _Sum, b: _Sum) -> _Sum:
        """a ± b, coefficient by coefficient."""
        states = a.coefficients.keys() | b.coefficients.keys()
        zero = builder.number(0)
        found = {
            i: builder.add(op, a.coefficients.get(i, zero), b.coefficients.get(i, zero))
            if i in b.coefficients
            else a.coefficients[i]
            for i in states
        }
        if a.rest is None and b.rest is None:
            return _Sum(found, None)
        return _Sum(found, builder.add(op, known(a.rest), known(b.rest)))

    def scaled(op: str, a: _Sum, factor: int) -> _Sum:
        found = {i: builder.add(op, c, factor) for i, c in a.coefficients.items()}
        return _Sum(found, None if a.rest is None else builder.add(op, a.rest, factor))

    if node.op == "state":
        return _Sum({node["index"]: builder.number(1, node.width)}, None)
    if not any(arg.coefficients for arg in args):
        return _Sum({}, builder.copy(node, tuple(known(arg.rest) for arg in args)))
    if node.op in ("add", "sub"):
        return each(node.op, *args)
    if node.op == "identity":
        return args[0]
    if node.op == "mul" and not (args[0].coefficients and args[1].coefficients):
        a, b = args if args[0].coefficients else args[::-1]
        return scaled("mul", a, known(b.rest))
    if node.op == "div" and not args[1].coefficients:
        return scaled("div", args[0], known(args[1].rest))
    if node.op == "where" and not args[0].coefficients:
        mask, (a, b), zero = known(args[0].rest), args[1:], builder.number(0)
        states = a.coefficients.keys() | b.coefficients.keys()
        found = {
            i: builder.add("where", mask, a.coefficients.get(i, zero), b.coefficients.get(i, zero))
            for i in states
        }
        return _Sum(found, builder.add("where", mask, known(a.rest), known(b.rest)))
    raise NotAffine(f"{node.op} of a state is not linear in it")
