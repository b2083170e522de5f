"""Generated kernels read as if written by hand, and hold no name of a file."""

import ast

import pytest
import torch

from metarnn import Cell, GraphCell, Map, cells
from metarnn.engines.plan import plan_loop
from metarnn.engines.triton.kernel import Kernel
from metarnn.engines.triton.loops import loop_kernels
from metarnn.graph import trace_cell
from tests.helpers.cases import EVERY
from tests.helpers.oracle import agree


def source(cell: Cell, which: str) -> str:
    return getattr(loop_kernels(plan_loop(cell)), which).program.source


def test_kernels_say_what_they_compute_and_what_their_arrays_hold():
    forward = source(cells.LSTM(16, 64), "train")
    for line in (
        "def lstm_h64_forward(",
        "    h_states_ptr,  # [T + 1 or 3, B, 64], before each step",
        "    weight_hh_ptr,  # [256, 64]",
        "    drive_ptr,  # [T, B, 256]",
        "        acc_hh = reduce(acc_hh, PARTS_HH)",
        "        h_new = o * g_2",
        "        # Publish h for the next step.",
        "        # Prefetch the inputs of the next step.",
        "        h = h_new",
    ):
        assert line in forward
    backward = source(cells.LSTM(16, 64), "backward")
    assert "def lstm_h64_backward(" in backward
    assert "    grad_output_ptr,  # [T, B, 64]" in backward


def test_scans_do_too():
    forward = source(cells.MinGRU(16, 64), "train")
    assert "def mingru_h64_forward(" in forward
    assert "h = look_back(" in forward


@pytest.mark.parametrize("which", ["infer", "train", "backward"])
@pytest.mark.parametrize("name", EVERY)
def test_all_that_is_imported_is_used_and_every_argument_is_commented(name, which):
    text = source(EVERY[name], which)
    tree = ast.parse(text)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                for alias in node.names}  # fmt: skip
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert imported <= used
    head = text[text.index("\ndef ") : text.index("\n):\n")]
    assert all("_ptr,  # " in line for line in head.splitlines() if "_ptr" in line)


class Namesakes(Cell):
    """Its weights have names of other things in a kernel, or of one another but for capitals."""

    @property
    def maps(self):
        n = self.hidden_size
        return {name: Map(n, n, recurrent=True) for name in ("hh", "HH", "t", "program", "a_low")}

    @property
    def vectors(self):
        names = ("rows", "B", "h", "acc_hh", "row_mask", "UNITS_3", "h_new", "tl")
        return {name: self.hidden_size for name in names}

    def step(self, theta, drive, state):
        (h,) = state
        scales = drive + theta.rows * theta.B + theta.h * theta.acc_hh + theta.row_mask
        products = theta.hh(h) * theta.HH(h) + theta.t(h) - theta.program(h) + theta.a_low(h)
        return (torch.tanh(products + scales + theta.UNITS_3 + theta.h_new * theta.tl),)


@pytest.mark.medium
def test_any_names_of_weights_will_do(device):
    agree(Namesakes(3, 3), device, steps=2)


def test_a_cell_that_holds_a_graph_names_no_kernel():
    kernels = loop_kernels(plan_loop(GraphCell(trace_cell(cells.LSTM(3, 4)))))
    for kernel in (kernels.train, kernels.backward):
        assert isinstance(kernel, Kernel)
        assert kernel.program.name == "recurrence"
        assert "hh" not in kernel.program.source.lower()
