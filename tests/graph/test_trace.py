"""A traced cell computes what the cell computes; what a graph cannot hold is refused by name."""

import pytest
import torch
from torch.nn import functional as F

from metarnn import Cell, Map
from metarnn.cells import Feedback, Theta, shapes
from metarnn.graph import Untraceable, evaluate, linear, trace_cell
from tests.helpers.cases import EVERY, OPTIONS, TRACEABLE, randn
from tests.helpers.compare import assert_close

CELLS = TRACEABLE | {f"feedback-{name}": Feedback.around(cell) for name, cell in EVERY.items()}


def weights_of(cell):
    return {n: 0.5 * randn(*s, seed=k) for k, (n, s) in enumerate(shapes(cell).items())}


@pytest.mark.parametrize("name", CELLS)
def test_the_graph_of_a_cell_computes_what_the_cell_does(name):
    cell = CELLS[name]
    graph, weights = trace_cell(cell), weights_of(cell)
    theta = Theta(cell, weights)
    x = randn(2, cell.window * cell.input_size)
    state = tuple(randn(2, n, seed=k) for k, n in enumerate(cell.states))
    drive = cell.drive(theta, x)
    new = cell.step(theta, drive, state)
    known = {}
    for k, node in enumerate(graph.nodes):
        given = {"input": lambda: x, "state": lambda n=node: state[n["index"]]}
        given["vector"] = lambda n=node: weights[n["name"]]
        if node.op in given:
            known[k] = given[node.op]()
    found = evaluate(graph, known, graph.results, linear(weights), x)
    assert_close(found, [*new, cell.output(theta, drive, new)], 1e-14)


@pytest.mark.parametrize("name", [n for n in OPTIONS if n not in TRACEABLE])
def test_a_function_that_graphs_do_not_have_is_named(name):
    with pytest.raises(Untraceable, match=r"graphs have no operation for atan"):
        trace_cell(OPTIONS[name])


class Strange(Cell):
    """A cell whose step is whatever a test says."""

    does: object = None

    @property
    def maps(self):
        return {"ih": Map(self.input_size, self.hidden_size)}

    def drive(self, theta, x):
        return theta.ih(x)

    def step(self, theta, drive, state):
        return (self.does(drive, state[0]),)  # type: ignore[operator]


CAPTURED = torch.ones(4)


def branch(x, h):
    return x if h.sum(-1, keepdim=True) > 0 else h


def assign(x, h):
    h[..., 0:2] = 1.0
    return h


REFUSED = {
    "add_": lambda x, h: h.add_(x),
    "no tensors but those it is given": lambda x, h: h + CAPTURED,
    "no tensors but those it is given ": lambda x, h: CAPTURED * h,
    "cat with these arguments": lambda x, h: torch.cat([h[..., 1:], CAPTURED[:1]], -1),
    "no operation for dropout": lambda x, h: F.dropout(x + h),
    "no operation for view": lambda x, h: h.view(-1, 2, 2),
    "no operation for reshape": lambda x, h: h.reshape(-1),
    "no operation for erfinv": lambda x, h: torch.erfinv(h),
    "no operation for matmul": lambda x, h: torch.matmul(h, h),
    "no operation for eq": lambda x, h: torch.where(h == 0, x, h),
    r"mean without a dimension .* write x\.mean\(-1, keepdim=True\)": lambda x, h: h.mean() * h,
    "branches on its values": branch,
    "item assignment": assign,
    "the power 0": lambda x, h: h**0,
    "powers of -2": lambda x, h: (-2) ** h,
    "gelu with approximate='sigmoid'": lambda x, h: F.gelu(h, approximate="sigmoid"),
    "a threshold from 20 on": lambda x, h: F.softplus(h, 2.0, 1.0),
    "div takes no attributes": lambda x, h: torch.div(x, h, rounding_mode="floor"),
    "without keepdim": lambda x, h: h * h.sum(-1),
    "along dimension 0": lambda x, h: h.cumsum(0),
    "exp takes 1 values": lambda x, h: h.exp(h),
    "indexing by": lambda x, h: h[0],
    "different widths": lambda x, h: h[..., :3] + x,
    "slice": lambda x, h: h[..., 2:2] + x,
    "returns a Tensor": lambda x, h: CAPTURED,
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_a_graph_cannot_hold_is_refused_by_name(why):
    with pytest.raises(Untraceable, match=why.strip()):
        trace_cell(Strange(3, 4, REFUSED[why]))  # type: ignore[call-arg]


def test_comparisons_squares_and_clamps_are_traced():
    def step(x, h):
        return torch.where(x > h, x**2, h.clamp(-1, 0.5)) + (x < 0.1).to(x.dtype)

    cell = Strange(3, 4, step)  # type: ignore[call-arg]
    weights = weights_of(cell)
    x, h = randn(2, 3), randn(2, 4, seed=5)
    graph = trace_cell(cell)
    known = {graph.named("input")["x"]: x}
    known |= {k: h for k, node in enumerate(graph.nodes) if node.op == "state"}
    drive = cell.drive(Theta(cell, weights), x)
    found = evaluate(graph, known, graph.next_states, linear(weights), x)
    assert_close(found, [step(drive, h)], 1e-15)
