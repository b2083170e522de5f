"""Formulas that a person recognises."""

import pytest

from metarnn import cells
from metarnn.graph import latex, text, trace_cell
from tests.helpers.cases import EVERY, TRACEABLE
from tests.helpers.random_graphs import random_graph

GRAPHS = {name: trace_cell(cell) for name, cell in TRACEABLE.items()}
GRAPHS |= {f"random-{seed}": random_graph(seed, extra_outputs=True) for seed in range(40)}


def test_the_lstm_reads_like_the_lstm():
    assert text(trace_cell(cells.LSTM(3, 4))).splitlines() == [
        "i_t = σ(W_ih[1] x_t + b_ih[1] + W_hh[1] h_{t-1} + b_hh[1])",
        "f_t = σ(W_ih[2] x_t + b_ih[2] + W_hh[2] h_{t-1} + b_hh[2])",
        "g_t = tanh(W_ih[3] x_t + b_ih[3] + W_hh[3] h_{t-1} + b_hh[3])",
        "c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t",
        "o_t = σ(W_ih[4] x_t + b_ih[4] + W_hh[4] h_{t-1} + b_hh[4])",
        "h_t = o_t ⊙ tanh(c_t)",
        "y_t = h_t",
    ]


def test_the_gru_reads_like_the_gru():
    assert text(trace_cell(cells.GRU(3, 4, bias=False, reset="before"))).splitlines() == [
        "r_t = σ(W_ih[1] x_t + W_hh[1] h_{t-1})",
        "g_t = tanh(W_ih[3] x_t + W_hn (r_t ⊙ h_{t-1}))",
        "z_t = σ(W_ih[2] x_t + W_hh[2] h_{t-1})",
        "h_t = (1 - z_t) ⊙ g_t + z_t ⊙ h_{t-1}",
        "y_t = h_t",
    ]


def test_latex_of_the_quasi_recurrent_network():
    assert latex(trace_cell(cells.QRNN(3, 4))).splitlines() == [
        r"\begin{aligned}",
        r"  z_{t} &= \sigma\left(W_{ih}^{(2)} x_{t-1:t} + b_{ih}^{(2)}\right) \\",
        r"  o_{t} &= \sigma\left(W_{ih}^{(3)} x_{t-1:t} + b_{ih}^{(3)}\right) \\",
        r"  g_{t} &= \tanh\left(W_{ih}^{(1)} x_{t-1:t} + b_{ih}^{(1)}\right) \\",
        r"  h_{t} &= z_{t} \odot h_{t-1} + \left(1 - z_{t}\right) \odot g_{t} \\",
        r"  y_{t} &= o_{t} \odot h_{t}",
        r"\end{aligned}",
    ]


@pytest.mark.parametrize("name", GRAPHS)
def test_every_name_is_explained_before_it_is_used_and_only_once(name):
    lines = [line.split(" = ", 1) for line in text(GRAPHS[name]).splitlines()]
    left = [name for name, _ in lines]
    assert len(set(left)) == len(left)
    for k, (_, right) in enumerate(lines):
        for later in left[k:]:
            assert later not in right.replace("(", " ").replace(")", " ").split()


@pytest.mark.parametrize("name", GRAPHS)
def test_latex_is_balanced(name):
    found = latex(GRAPHS[name])
    depth = 0
    for before, char in zip(" " + found, found, strict=False):
        depth += 0 if before == "\\" else {"{": 1, "}": -1}.get(char, 0)
        assert depth >= 0
    assert depth == 0
    assert found.count(r"\left(") == found.count(r"\right)")
    assert found.count(r"\left[") == found.count(r"\right]")
    lines = found.splitlines()[1:-1]
    assert all(line.count("&=") == 1 for line in lines)
    assert all(line.endswith(r" \\") for line in lines[:-1])


def test_brackets_stand_where_they_are_needed():
    lines = text(trace_cell(EVERY["mingru"])).splitlines()
    assert lines[1] == "h_t = (1 - z_t) ⊙ h_{t-1} + z_t ⊙ (W_ih[2] x_t + b_ih[2])"
