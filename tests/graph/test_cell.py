"""A graph as a cell: what was traced, in every layer and engine; LSTM and GRU are torch's."""

import copy

import pytest
import torch

from metarnn import GraphCell, Recurrent, cells
from metarnn.cells import Feedback, Theta, shapes
from metarnn.graph import Builder, GraphError, Node, from_json, to_json, trace_cell
from metarnn.hyper import Generated, Scale
from tests.helpers.cases import EVERY, TRACEABLE, make, randn, random_state
from tests.helpers.compare import assert_close, inputs, measure

GRAPHS = {name: trace_cell(cell) for name, cell in EVERY.items()}


def results(layer, x, state, **call):
    x, *state = inputs(x, *state)
    weights = dict(layer.named_parameters())
    wrt = [x, *state, *(weights[name] for name in sorted(weights))]
    return measure(lambda: layer(x, tuple(state), **call), wrt)


def both(cell, engine="eager", **options):
    """A layer of a cell, and one of its graph with the same weights."""
    layer = make(cell, engine="eager", **options)
    other = make(GraphCell(trace_cell(cell)), engine=engine, **options)
    other.load_state_dict(layer.state_dict())
    return layer, other


@pytest.mark.parametrize("engine", ["eager", "cpu", "auto"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_lstm_and_gru_as_graphs_are_those_of_torch(kind, engine):
    theirs = getattr(torch.nn, kind)(3, 4, num_layers=2, bidirectional=True).double()
    cell = GraphCell(trace_cell(getattr(cells, kind)(3, 4)))
    ours = Recurrent(cell, 2, bidirectional=True, engine=engine, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict())
    x = randn(7, 3, 3)
    state = random_state(ours, 3)
    torch_state = state if kind == "LSTM" else state[0]
    found = []
    for layer, given in ((theirs, torch_state), (ours, torch_state)):
        leaves = inputs(x, *state)
        given = tuple(leaves[1:]) if kind == "LSTM" else leaves[1]
        weights = dict(layer.named_parameters())
        wrt = [*leaves, *(weights[name] for name in sorted(weights))]
        found.append(measure(lambda: layer(leaves[0], given), wrt))  # noqa: B023
    assert_close(found[1], found[0], 1e-12)


CALLS = {
    "plain": ({}, {}),
    "lengths": ({"bidirectional": True}, {"lengths": [5, 1, 3]}),
    "resets": ({}, {"resets": torch.tensor([[0, 1, 0, 0, 1]] * 3).T.bool()}),
    "zoneout": ({"zoneout": 0.3}, {}),
    "recurrent dropout": ({"recurrent_dropout": 0.4}, {}),
    "feedback": ({"feedback": True}, {}),
}


# The cpu engine compiles each of these anew.
COMPILED = ["lstm-all", "gru-before", "qrnn-2", "onlstm"]
CASES = [(name, call, "eager") for name in EVERY for call in CALLS]
CASES += [(name, call, "cpu") for name in COMPILED for call in CALLS if call != "plain"]


def fits(name, call):
    recurrent = any(m.recurrent for m in EVERY[name].maps.values())
    return recurrent or call != "recurrent dropout"


@pytest.mark.parametrize(
    ("name", "call", "engine"),
    [
        pytest.param(*case, marks=pytest.mark.medium) if case[2] == "cpu" else case
        for case in CASES
        if fits(*case[:2])
    ],
)
def test_the_cell_of_a_graph_is_the_cell_it_was_traced_from(name, call, engine):
    options, arguments = CALLS[call]
    cell = EVERY[name]
    layers = both(cell, engine, **options)
    state = random_state(layers[0], 3)
    found = []
    for layer in layers:
        torch.manual_seed(3)
        found.append(results(layer.train(), randn(5, 3, 3), state, **arguments))
    assert_close(found[1], found[0])


@pytest.mark.parametrize("name", [n for n in EVERY if not n.startswith("sru")])
def test_a_graph_makes_stacks(name):
    layers = both(EVERY[name], num_layers=3, bidirectional=True)
    state = random_state(layers[0], 2)
    found = [results(layer, randn(4, 2, 3), state) for layer in layers]
    assert_close(found[1], found[0])


@pytest.mark.parametrize("name", TRACEABLE)
def test_cells_of_equal_graphs_are_equal_and_trace_to_the_same_graph(name):
    graph = trace_cell(TRACEABLE[name])
    cell = GraphCell(graph)
    again = GraphCell(from_json(to_json(graph)))
    assert cell == again == copy.deepcopy(cell)
    assert hash(cell) == hash(again) == hash(copy.deepcopy(cell))
    assert len(trace_cell(cell).nodes) == len(graph.nodes)
    assert trace_cell(GraphCell(trace_cell(cell))) == trace_cell(cell)


def test_cells_of_different_graphs_differ():
    assert GraphCell(GRAPHS["lstm"]) != GraphCell(GRAPHS["gru"])
    assert GraphCell(GRAPHS["lstm"]) != GraphCell(trace_cell(cells.LSTM(3, 5)))


def test_a_layer_of_a_graph_can_be_copied():
    layer = make(GraphCell(GRAPHS["gru"]))
    x = randn(4, 2, 3)
    assert_close(copy.deepcopy(layer)(x), layer(x), 0)


def test_gains_start_at_one():
    layer = Recurrent(GraphCell(GRAPHS["lstm-all"]))
    assert all((w == 1).all() for n, w in layer.weights(0).items() if n.startswith("gain_"))


# --- other input widths -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["elman", "lstm-all", "gru-before", "qrnn-3", "onlstm", "own"])
def test_a_graph_for_wider_inputs_is_that_of_the_wider_cell(name):
    wider = GraphCell(GRAPHS[name]).resized(8)
    assert wider == GraphCell(trace_cell(EVERY[name].resized(8)))


def test_x_may_enter_through_a_product_of_joined_rows():
    around = Feedback.around(cells.GRU(3, 4))  # reads [x; y]
    assert GraphCell(trace_cell(around)).resized(6).graph == trace_cell(around.resized(6))


def test_a_graph_without_input_takes_any():
    builder = Builder({})
    h = builder.add("state", width=4, index=0)
    new = builder.add("tanh", h)
    cell = GraphCell(builder.graph([new], {"y": new}))
    assert cell.input_size == 0
    assert cell.resized(5).input_size == 5
    assert cell.resized(5).resized(2).input_size == 2


def test_a_graph_that_uses_x_itself_keeps_its_width():
    cell = GraphCell(trace_cell(cells.SRU(4, 4)))
    assert cell.resized(4) is cell
    with pytest.raises(GraphError, match=r"node \d+ \('mul'\) uses them directly"):
        cell.resized(5)


def test_a_map_that_also_reads_other_rows_keeps_its_width():
    builder = Builder({"m": cells.LSTM(4, 4).maps["hh"]})
    rows = [builder.add("input", width=4, name="x"), builder.add("state", width=4, index=0)]
    x, h = (builder.add("linear", k, map="m", start=0, stop=4, bias=True) for k in rows)
    new = builder.add("slice", builder.add("add", x, h), start=0, stop=4)
    with pytest.raises(GraphError, match="'m' reads rows of other kinds"):
        GraphCell(builder.graph([new], {"y": new})).resized(5)


# --- graphs that are no cell's ------------------------------------------------------------------


def simple(**changes):
    """A graph h' = y = h + vector, with changes."""
    builder = Builder({})
    h = builder.add("state", width=4, index=0)
    x = builder.add(changes.get("kind", "input"), width=4, name=changes.get("name", "x"))
    gate = builder.add("sigmoid", h)
    new = builder.add("mul", builder.add("add", h, x), gate)
    outputs = changes.get("outputs", {"y": new if not changes.get("old") else gate})
    return builder.graph([new], outputs, changes.get("window", 1))


REFUSED = {
    "is the context 'x'": {"kind": "context"},
    r"has the outputs \[\]": {"outputs": {}},
    "'y' depends on state 0 before": {"old": True},
    "multiple of window=3": {"window": 3},
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_graph_that_is_no_cells_is_refused(why):
    with pytest.raises(GraphError, match=why):
        GraphCell(simple(**REFUSED[why]))


def test_a_graph_with_another_input_is_a_cell_that_is_given_it():
    cell = GraphCell(trace_cell(Generated(cells.GRU(3, 4), (Scale(),))))
    assert cell.extra_inputs == {"columns_hh": 4}
    theta = Theta(cell, {name: torch.randn(shape) for name, shape in shapes(cell).items()})
    again = Generated(cells.GRU(3, 4), (Scale(),))
    rows = {"x": torch.randn(2, 3), "columns_hh": torch.randn(2, 4)}
    state = (torch.randn(2, 4),)
    found, expected = (c.step(theta, c.drive(theta, rows), state)[0] for c in (cell, again))
    torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match="give it the plain unit"):
        Recurrent(cell)


def test_a_part_of_a_map_is_refused():
    graph = from_json(to_json(GRAPHS["elman"]))
    k = next(k for k, n in enumerate(graph.nodes) if n.op == "linear")
    node = graph.nodes[k]
    nodes = list(graph.nodes)
    nodes[k] = Node(node.op, node.args, node.width, {**node.attributes, "bias": False})
    graph = type(graph)(tuple(nodes), graph.next_states, graph.outputs, graph.maps)
    with pytest.raises(GraphError, match="applies a part of the map"):
        GraphCell(graph)
