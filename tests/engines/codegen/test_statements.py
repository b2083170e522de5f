"""What the generators of C and of Triton share."""

from collections.abc import Iterator

import pytest

from metarnn.engines.codegen.dataflow import Dataflow, Slice, Use, aliases
from metarnn.engines.codegen.names import Names
from metarnn.engines.codegen.ondemand import OnDemand
from metarnn.engines.codegen.printer import Printer
from metarnn.engines.codegen.statements import (
    Axes,
    Block,
    Code,
    Comment,
    Elementwise,
    For,
    If,
    Load,
    Operand,
    Statement,
    Value,
)
from metarnn.graph import Builder, Graph


def step() -> tuple[Graph, dict[str, int]]:
    """Half of half of a state, twice that, and both under several names."""
    builder = Builder({})
    nodes = {"h": builder.add("state", width=8, index=0)}
    nodes["half"] = builder.add("slice", nodes["h"], start=4, stop=8)
    nodes["quarter"] = builder.add("slice", nodes["half"], start=1, stop=3)
    nodes["twice"] = builder.add("add", nodes["quarter"], nodes["quarter"])
    outputs = {"a": nodes["twice"], "b": nodes["twice"], "dvector.w": nodes["twice"]}
    return builder.graph([nodes["h"]], {**outputs, "q": nodes["quarter"]}), nodes


def test_a_slice_of_a_slice_is_one_of_its_root():
    graph, nodes = step()
    assert Dataflow(graph).slice(nodes["quarter"]) == Slice(nodes["h"], 5, 2)
    assert Dataflow(graph).slice(nodes["twice"]) == Slice(nodes["twice"], 0, 2)


def test_users_read_through_slices_and_results_that_are_slices_read_too():
    graph, nodes = step()
    flow = Dataflow(graph)
    expected = {Use(nodes["twice"], 5, 2), Use(nodes["quarter"], 5, 2)}
    assert set(flow.uses(nodes["h"])) == expected
    assert flow.needs_memory(nodes["h"], lambda k, use: use.user == nodes["twice"])
    assert not flow.needs_memory(nodes["h"], lambda k, use: True)


def test_outputs_of_one_kind_that_are_the_same_value_are_aliases():
    graph, _ = step()
    assert aliases(graph, lambda name: name.startswith("dvector.")) == {"b": "a"}
    assert aliases(graph, lambda name: "") == {"b": "a", "dvector.w": "a"}


class Here(OnDemand):
    def computes(self, k: int) -> bool:
        return True

    def source(self, k: int) -> Operand:
        self.statements.append(Comment(f"load {self.flow.slice(k)}"))
        return Value("loaded", Axes.UNITS)


def test_a_value_is_computed_once_after_what_it_reads():
    graph, nodes = step()
    here = Here(Dataflow(graph))
    value = here.value(nodes["twice"])
    assert here.value(nodes["twice"]) is value
    load, add = here.statements
    assert isinstance(load, Comment)
    assert isinstance(add, Elementwise)
    assert add.args == (Value("loaded", Axes.UNITS),) * 2
    assert value.axes is Axes.UNITS


def test_axes_are_those_of_all_arguments():
    assert Axes.UNITS | Axes.SEQUENCES is Axes.TILE
    assert Axes.NONE | Axes.UNITS is Axes.UNITS


class Pseudo(Printer):
    comment = "--"

    def statement(self, statement: Statement) -> Iterator[str]:
        raise TypeError(f"no text for {statement}")

    def constant(self, value: float) -> str:
        return str(value)

    def loop(self, loop: For) -> str:
        return f"for {loop.variable}"

    def block(self, head: str, body: Block) -> Iterator[str]:
        yield head
        yield from self.indented(body)

    def condition(self, text: str, otherwise: bool) -> str:
        return "else" if otherwise else f"if {text}"


def test_blocks_are_nested_and_indented():
    inner = If("odd", (Code("a"),), (Comment("nothing"), Code("b")))
    text = Pseudo().text([For("i", "0", "n", (inner,)), Code("c")], depth=1)
    assert text.splitlines() == [
        "    for i",
        "        if odd",
        "            a",
        "        else",
        "            -- nothing",
        "            b",
        "    c",
    ]


def test_a_statement_that_a_language_does_not_have_is_refused():
    with pytest.raises(TypeError, match="Load"):
        Pseudo().text([Load(Value("x"), None)])  # type: ignore[arg-type]


def test_no_two_things_have_one_name():
    graph, _ = step()
    names = Names(Dataflow(graph), readable=True, backward=False, reserved=("t",))
    assert [names.unique(name) for name in ("h", "h", "t", "a.b", "a b", "é")] == [
        "h",
        "h_2",
        "t_2",
        "a_b",
        "a_b_2",
        "_",
    ]
