import dataclasses

import numpy as np
import pytest
import torch

from metarnn import cells
from tests.helpers import equations
from tests.helpers.cases import EVERY, OPTIONS, QUICK, make, parts, randn, random_state
from tests.helpers.compare import assert_close


@pytest.mark.parametrize(("name", "engine"), QUICK)
def test_every_engine_computes_the_equations_of_the_cell(name, engine):
    assert_equations(EVERY[name], make(EVERY[name], engine=engine))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_layer_computes_the_equations_of_its_cell(name):
    assert_equations(OPTIONS[name], make(OPTIONS[name]))


def assert_equations(cell, layer):
    x, state = randn(5, 2, cell.input_size), random_state(layer, 2)
    output, final = layer(x, state)
    w = equations.arrays(layer.weights(0))
    for b in range(2):
        start = [part[0, b].numpy() for part in state]
        y, end = equations.sequence(cell, w, x[:, b].numpy(), start)
        assert_close(output[:, b], torch.from_numpy(y))
        assert_close([part[0, b] for part in parts(final)], list(map(torch.from_numpy, end)))


@pytest.mark.parametrize("name", OPTIONS)
def test_every_weight_that_a_cell_declares_matters(name):
    cell = OPTIONS[name]
    layer = make(cell)
    x, state = randn(5, 2, cell.input_size), random_state(layer, 2)
    loss = layer(x, state)[0].square().sum()
    gradients = torch.autograd.grad(loss, list(layer.parameters()))
    for (weight, _), gradient in zip(layer.named_parameters(), gradients, strict=True):
        assert gradient.abs().max() > 0, weight


def test_the_cases_reach_every_built_in_cell_and_every_option():
    for kind in cells.CELLS.values():
        if not (isinstance(kind, type) and kind.__module__.startswith("metarnn.cells")):
            continue  # made of other cells: tests/hyper
        tried = [cell for cell in OPTIONS.values() if type(cell) is kind]
        assert tried
        for field in dataclasses.fields(kind):
            if field.name not in ("hidden_size", "outputs", "forget_bias"):  # sizes, a start
                assert len({getattr(cell, field.name) for cell in tried}) > 1 or (
                    field.name == "input_size"
                ), (kind, field.name)


def test_minlstm_stays_exact_where_both_gates_are_shut():
    layer = make(cells.MinLSTM(1, 1, bias=False))
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.tensor([[-800.0], [-801.0], [2.0]]))
    output, _ = layer(torch.ones(1, 1, 1, dtype=torch.float64), torch.zeros(1, 1, 1).double())
    keep = 1 / (1 + np.exp(-1.0))  # e^-800 / (e^-800 + e^-801), both 0 in float64
    assert_close(output, torch.full((1, 1, 1), (1 - keep) * 2, dtype=torch.float64))


def test_a_gru_that_resets_before_differs_from_one_that_resets_after():
    after, before = (cells.GRU(3, 4, reset=r) for r in ("after", "before"))
    layer, other = make(after), make(before)
    with torch.no_grad():
        for kind in ("weight", "bias"):
            both = getattr(layer, f"{kind}_hh_l0")
            getattr(other, f"{kind}_ih_l0").copy_(getattr(layer, f"{kind}_ih_l0"))
            getattr(other, f"{kind}_hh_l0").copy_(both[:8])
            getattr(other, f"{kind}_hn_l0").copy_(both[8:])
    x = randn(4, 2, 3)
    first, second = layer(x)[0], other(x)[0]
    assert not torch.allclose(first, second)
    with torch.no_grad():  # with r = 1 there is nothing to tell them apart
        layer.bias_ih_l0[:4] = other.bias_ih_l0[:4] = 1e3
    assert_close(layer(x)[0], other(x)[0])
