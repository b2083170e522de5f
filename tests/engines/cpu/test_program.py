"""Generated C: it reads as if written by hand, and no name of a file is in it."""

from functools import partial

import pytest
import torch

from metarnn import Cell, GraphCell, Map, cells, hyper
from metarnn.engines.cpu.loops import LoopKernel, projectable
from metarnn.engines.cpu.program import emit
from metarnn.engines.cpu.projections import all_gradients, no_projections
from metarnn.engines.plan import cell_name, plan_loop
from metarnn.graph import trace_cell
from tests.helpers.cases import make, randn
from tests.helpers.compare import assert_close
from tests.helpers.random_graphs import random_graph


@pytest.mark.medium
def test_programs_say_what_they_compute_and_what_their_arrays_hold():
    plan = plan_loop(cells.LSTM(16, 64), products_only=True)
    forward = LoopKernel(plan, "train", torch.float32, projected=True).source
    assert "static void lstm_h64_forward(job *job, long thread) {" in forward
    for line in (
        "    DRIVE,            /* [T, B, 256] */",
        "    WEIGHT_HH,        /* [256, 64] */",
        "/* Stage 1: product_hh_t = W_hh h; then c_next, h_next. */",
        "/* drive = x W_ih^T + b */",
        "const v f = v_sigmoid(",
        "store(c_next + b * 64 + u, c_new, lanes);",
    ):
        assert line in forward
    backward = LoopKernel(plan, "backward", torch.float32, projected=True).source
    assert "static void lstm_h64_backward(job *job, long thread) {" in backward
    assert "grad_weight_hh = grad_product_hh^T h_before" in backward


class Namesakes(Cell):
    """Its weights are called as other things in C are, or as one another but for capitals."""

    @property
    def maps(self):
        n = self.hidden_size
        names = ("hh", "HH", "t", "double")
        return {name: Map(n, n, recurrent=True) for name in names}

    @property
    def vectors(self):
        return {name: self.hidden_size for name in ("b", "B", "V", "h", "x", "load", "c_next")}

    def step(self, theta, drive, state):
        (h,) = state
        scales = drive + theta.b * theta.B + theta.V - theta.h * theta.x + theta.load + theta.c_next
        return (torch.tanh(theta.hh(h) * theta.HH(h) + theta.t(h) - theta.double(h) + scales),)


@pytest.mark.medium
def test_any_names_of_weights_will_do():
    layers = [make(Namesakes(3, 3), engine=engine) for engine in ("cpu", "eager")]
    x = randn(4, 2, 3)
    assert_close(*(layer(x)[0] for layer in layers))


@pytest.mark.medium
@pytest.mark.parametrize("name", ["", "cell_h4"])
def test_all_random_cells_have_names_for_what_they_pass_around(name):
    for seed in range(324):
        plan = plan_loop(GraphCell(random_graph(seed)), products_only=True)
        backward = plan.graphs().backward.graph
        around = partial(all_gradients, plan) if projectable(plan) else no_projections
        assert emit(backward, name=name, backward=True, projections=around).source


def test_a_cell_that_holds_a_graph_names_no_program():
    lstm = cells.LSTM(3, 4)
    graph = GraphCell(trace_cell(lstm))
    assert cell_name(lstm) == "lstm_h4"
    assert cell_name(hyper.Generated(lstm, (hyper.Scale(),))) == "generated_h4"
    assert cell_name(graph) == ""
    assert cell_name(hyper.Generated(graph, (hyper.Scale(),))) == ""
    source = LoopKernel(plan_loop(graph), "train", torch.float32, projected=False).source
    assert "static void forward(job *job, long thread) {" in source
    assert "hh" not in source[source.index("/* Places in") :].lower()
