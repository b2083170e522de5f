"""The Mogrifier against its equations, written out, and as a cell like any other."""

import numpy as np
import pytest
import torch

from metarnn import GraphCell, Recurrent, cells
from metarnn.graph import trace_cell
from metarnn.hyper import Mogrifier
from tests.helpers.cases import EVERY, make, randn
from tests.helpers.compare import assert_close, inputs, measure
from tests.helpers.equations import arrays, σ


def lstm(w, x, h, c):
    gates = w["weight_ih"] @ x + w["bias_ih"] + w["weight_hh"] @ h + w["bias_hh"]
    i, f, g, o = np.split(gates, 4)
    c = σ(f) * c + σ(i) * np.tanh(g)
    return σ(o) * np.tanh(c), c


@pytest.mark.parametrize(("rounds", "rank"), [(1, 0), (2, 0), (5, 0), (5, 2), (4, 3)])
def test_a_mogrifier_lstm_computes_the_equations_of_the_paper(rounds, rank):
    layer = make(Mogrifier(cells.LSTM(3, 4), rounds, rank))
    w = arrays(layer.weights(0))

    def matrix(name):
        up = w[f"weight_{name}_up"]
        return up @ w[f"weight_{name}_down"] if rank else up

    x = randn(6, 1, 3)
    h, c, expected = np.zeros(4), np.zeros(4), []
    for x_t in x[:, 0].numpy():
        for i in range(1, rounds + 1):
            if i % 2:
                x_t = 2 * σ(matrix(f"q{i}") @ h) * x_t
            else:
                h = 2 * σ(matrix(f"r{i}") @ x_t) * h
        h, c = lstm(w, x_t, h, c)
        expected.append(h)
    assert_close(layer(x)[0][:, 0], torch.tensor(np.array(expected)))


@pytest.mark.parametrize("name", EVERY)
def test_it_starts_as_the_unit_that_it_is_around(name):
    unit = EVERY[name]
    torch.manual_seed(0)
    layer = Recurrent(Mogrifier(unit, 5, 2), 2, dtype=torch.float64)
    plain = Recurrent(unit, 2, dtype=torch.float64)
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k in plain.state_dict()})
    x = randn(5, 3, unit.input_size)
    lengths = [5, 2, 4]
    assert_close(layer(x, lengths=lengths)[0], plain(x, lengths=lengths)[0])


@pytest.mark.medium
@pytest.mark.parametrize("name", ["lstm", "gru-before", "qrnn-2", "sru-1", "jordan"])
def test_generated_code_runs_it_around_any_unit(name):
    results = []
    for engine in ("eager", "cpu"):
        layer = make(Mogrifier(EVERY[name], 3, 2), engine=engine)
        (x,) = inputs(randn(5, 3, 3))
        call = {"lengths": [5, 2, 4], "resets": randn(5, 3, seed=7) > 0.5}
        results.append(measure(lambda: layer(x, **call), [x, *layer.parameters()]))  # noqa: B023
    assert_close(results[1], results[0])


def test_around_a_graph_it_is_what_it_is_around_the_cell():
    cell = cells.GRU(3, 4)
    one = make(Mogrifier(cell, 4))
    two = make(Mogrifier(GraphCell(trace_cell(cell)), 4))
    two.load_state_dict(one.state_dict())
    x = randn(5, 2, 3)
    assert_close(two(x)[0], one(x)[0])


def test_after_two_updates_gradient_has_reached_every_weight():
    torch.manual_seed(0)
    layer = Recurrent(Mogrifier(cells.LSTM(3, 4), 5, 2))
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        layer(torch.randn(6, 4, 3))[0].square().sum().backward()
        optimizer.step()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0, name


def test_zoneout_holds_the_units_state_and_never_an_output_that_is_carried():
    layer = Recurrent(Mogrifier(cells.SRU(3, 4)), zoneout=0.5)
    assert layer.dropouts.zoneout == (0.5,)
    assert layer.train()(torch.randn(5, 2, 3))[0].shape == (5, 2, 4)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="rounds=0"):
        Mogrifier(cells.LSTM(3, 4), 0)
    with pytest.raises(ValueError, match="unit=3"):
        Mogrifier(3)  # type: ignore[arg-type]
