"""Who computes what, and who waits for whom: claims on the layout alone, without Triton."""

from collections.abc import Iterator

import pytest

from metarnn import Cell, cells, hyper
from metarnn.engines.plan import plan_loop
from metarnn.engines.triton.layout import Layout
from metarnn.engines.triton.loops import LoopKernels, loop_kernels
from metarnn.graph import Graph, GraphCell
from tests.helpers.cases import EVERY, LINEAR
from tests.helpers.random_graphs import random_graph

MASKS = ("alive", "resets")


def loop_of(cell: Cell, masks: tuple[str, ...] = ()) -> LoopKernels:
    return loop_kernels(plan_loop(cell, masks))


def graphs(cell: Cell, masks: tuple[str, ...] = ()) -> dict[str, Graph]:
    made = loop_of(cell, masks)
    graphs = made.graphs
    return {"infer": graphs.infer, "train": graphs.train, "reverse": graphs.backward.graph}


def layouts(cell: Cell, masks: tuple[str, ...] = ()) -> dict[str, Layout]:
    return {which: Layout(graph) for which, graph in graphs(cell, masks).items()}


def barriers(cell: Cell, masks: tuple[str, ...] = ()) -> set[int]:
    return {len(layout.awaited) for layout in layouts(cell, masks).values()}


@pytest.mark.parametrize("masks", [(), MASKS], ids=str)
@pytest.mark.parametrize(
    ("cell", "count"),
    [
        (cells.LSTM(3, 5), 1),
        (cells.LSTM(3, 5, peephole=True, coupled=True), 1),
        (cells.Elman(3, 5), 1),
        (cells.GRU(3, 5), 1),
        (cells.GRU(3, 5, reset="before"), 2),
        (hyper.Generated(cells.LSTM(3, 5), (hyper.Scale(),)), 1),
        (hyper.Generated(cells.LSTM(3, 5), (hyper.LowRank(rank=2),)), 1),  # short rows
        (hyper.Generated(cells.LSTM(3, 50), (hyper.LowRank(rank=40),)), 2),
    ],
    ids=str,
)
def test_a_step_has_a_barrier_for_each_product_that_waits_for_another(cell, count, masks):
    assert barriers(cell, masks) == {count}


def test_a_projection_waits_for_the_step_and_the_next_step_for_it():
    assert barriers(cells.LSTM(3, 5, proj_size=2)) == {2}


@pytest.mark.parametrize("name", LINEAR)
def test_a_step_without_products_has_no_barrier(name):
    assert barriers(LINEAR[name]) == {0}


def test_only_what_needs_whole_rows_is_shared_out_by_rows():
    def rows(cell):
        return {which: any(not segment.width for segment in layout.segments)
                for which, layout in layouts(cell).items()}  # fmt: skip

    assert set(rows(cells.LSTM(3, 5)).values()) == {False}
    assert set(rows(cells.GRU(3, 5, reset="before")).values()) == {False}
    assert set(rows(cells.LSTM(3, 5, layer_norm=True)).values()) == {True}
    assert set(rows(cells.ONLSTM(3, 4, chunk=2)).values()) == {True}


@pytest.mark.parametrize("inputs", [4, 5])  # of which one divides what the other products have
def test_a_product_that_a_later_stage_reads_is_not_cut_to_the_width_of_the_others(inputs):
    made = layouts(hyper.Mogrifier(cells.LSTM(inputs, 12), rounds=5))["train"]
    gates = [s.width for s in made.segments for k in s.products if made.nodes[k].width == 48]
    assert set(gates) <= {12, 48}
    assert all(segment.width for segment in made.segments)  # nothing here needs whole rows


def test_rows_so_short_that_each_program_computes_them_whole_never_leave_it():
    for layout in layouts(hyper.Mogrifier(cells.LSTM(40, 48), rounds=5, rank=8)).values():
        short = {k for s in layout.segments if s.replicated for k in s.nodes}
        assert {layout.nodes[k].width for k in short} == {8}
        assert not short & layout.in_memory
        assert len(layout.awaited) == 6  # one a round, and one for the unit


@pytest.mark.parametrize(
    "cell",
    [
        cells.LSTM(3, 5),  # a state of short rows: programs carry their own part of it
        cells.GRU(3, 5, reset="before"),  # short rows that others read unit by unit
        cells.LSTM(3, 24, proj_size=8),
    ],
    ids=str,
)
def test_short_rows_that_not_only_products_read_are_shared_out(cell):
    for layout in layouts(cell).values():
        assert not any(segment.replicated for segment in layout.segments)


HYPER = hyper.HyperLSTM(3, 24, 16)


def test_the_steps_of_a_hyperlstm_need_no_whole_rows_and_few_barriers():
    for which, layout in layouts(HYPER).items():
        assert all(segment.width for segment in layout.segments)
        assert len(layout.awaited) == (3 if which == "reverse" else 2)
        check_order(layout)
        assert not unordered(layout)


@pytest.mark.parametrize("cell", [HYPER, hyper.Generated(cells.LSTM(3, 24), (hyper.LowRank(),))])
def test_a_product_waits_for_the_stage_that_reads_it(cell):
    layout = layouts(cell)["train"]
    (gates,) = (k for k, n in enumerate(layout.nodes) if n.op == "linear" and n["map"] == "hh")
    assert layout.segment(gates).width == 24  # not 96: in registers, gate by gate
    assert all(layout.in_registers(gates, use) for use in layout.uses(gates))


def test_a_state_that_only_its_own_units_read_stays_in_registers():
    forward = layouts(cells.LSTM(3, 5))["infer"]
    assert forward.carried == {0, 1}
    assert [forward.state_in_memory(i) for i in (0, 1)] == [True, False]  # products read h, not c
    norm = layouts(cells.LSTM(3, 5, layer_norm=True))["infer"]
    assert norm.carried == set()  # its rows are shared out another way


def test_a_state_that_nothing_reads_stays_in_registers():
    layout = layouts(cells.SRU(3, 5, version=2))["infer"]
    assert 0 not in layout.state_node
    assert layout.carried == {0, 1}
    assert not layout.state_in_memory(0)


@pytest.mark.parametrize("name", EVERY)
def test_every_node_is_computed_once_after_what_it_needs(name):
    for layout in layouts(EVERY[name], MASKS).values():
        check_order(layout)


@pytest.mark.parametrize("seed", range(100))
def test_every_node_of_a_random_graph_is_computed_once_after_what_it_needs(seed):
    for layout in layouts(GraphCell(random_graph(seed))).values():
        check_order(layout)


def check_order(layout: Layout) -> None:
    computed = [k for s in layout.segments for k in s.nodes]
    assert len(computed) == len(set(computed))
    needed = {k for k, node in enumerate(layout.nodes) if not node.source and node.op != "slice"}
    assert needed | set(layout.targets) == set(computed)
    place = {k: i for i, k in enumerate(computed)}
    for k in computed:
        for a in layout.nodes[k].args:
            root = layout.slice(a).root
            assert layout.nodes[root].source or place[root] < place[k] or k in layout.targets


@pytest.mark.parametrize("name", EVERY)
def test_no_cell_reads_what_another_program_has_not_yet_written(name):
    for masks in ((), MASKS):
        for which, layout in layouts(EVERY[name], masks).items():
            assert not unordered(layout), which


@pytest.mark.parametrize("seed", range(100))
def test_no_random_graph_reads_what_another_program_has_not_yet_written(seed):
    for which, layout in layouts(GraphCell(random_graph(seed))).items():
        assert not unordered(layout), which


def test_without_barriers_there_would_be_something_to_find():
    layout = layouts(cells.LSTM(3, 5))["infer"]
    layout.awaited = {}
    assert unordered(layout)


# By brute force: which program writes and which reads each number of each value.

Owner = tuple[object, ...]


def unordered(layout: Layout) -> list[tuple[int, int]]:
    """(value, user): another program may read it too early, or find it overwritten."""
    steps, found = len(layout.segments), []

    def barrier(after: int, until: int) -> bool:
        return any(number % steps in layout.awaited for number in range(after + 1, until + 1))

    for k, node in enumerate(layout.nodes):
        if node.op == "slice" or (node.source and node.op != "state"):
            continue
        state = node.op == "state"
        written = layout.segment_of[layout.graph.next_states[node["index"]] if state else k]
        for user, start, width in readers(layout, k):
            owners = writers(layout, written, node.width)[start : start + width]
            if owners == consumers(layout, user, width):
                continue
            read = layout.segment_of[user] + state * steps
            ahead = layout.nodes[user].op == "linear" and k not in layout.awaited.get(
                read % steps, ()
            )
            again = written + (3 if state else 2) * steps  # so many slots are in the ring
            if not (barrier(written, read - ahead) and barrier(read - ahead, again)):
                found.append((k, user))
    return found


def readers(layout: Layout, k: int) -> Iterator[tuple[int, int, int]]:
    """(user, start, width): who reads which numbers of a node."""
    for user, node in enumerate(layout.nodes):
        if node.op != "slice" or user in layout.targets:
            for a in [user] if node.op == "slice" else node.args:
                root, start, width = layout.slice(a)
                if root == k:
                    yield user, start, width


def writers(layout: Layout, number: int, width: int) -> list[Owner]:
    """For each number of a row who writes it, in a segment."""
    n = layout.segments[number].width
    if layout.segments[number].replicated:
        return [("all",)] * width
    if not n:
        return [("whole row",)] * width
    return [("everyone", n)] if width == 1 < n else [("unit", n, c % n) for c in range(width)]


def consumers(layout: Layout, user: int, width: int) -> list[Owner]:
    """For each number that a user reads who reads it."""
    if layout.nodes[user].op == "linear":
        return [("all",)] * width
    return writers(layout, layout.segment_of[user], width)
