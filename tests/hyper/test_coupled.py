"""Weights written inside the step: every form, on every engine, and where it starts."""

import pytest
import torch

from metarnn import GraphCell, Recurrent, cells
from metarnn.graph import from_json, to_json, trace_cell
from metarnn.hyper import Coupled, Full, HyperLSTM, LowRank, Mixture, Mogrifier, Scale
from tests.helpers.cases import EVERY, make, randn
from tests.helpers.compare import assert_close, inputs, measure

FORMS = {
    "scale": (Scale(),),
    "rows": (Scale(("main", "bias"), rows=True, columns=False),),
    "lowrank": (LowRank(rank=2),),
    "mixture": (Mixture(bank=2),),
    "full": (Full(),),
    "chained": (Scale(rows=True), LowRank(rank=2)),
}


def coupled(unit, forms, embedding=0):
    width = unit.window * unit.input_size + unit.states[0]
    return Coupled(unit, forms, cells.GRU(width, 3), embedding)


@pytest.mark.medium
@pytest.mark.parametrize("name", FORMS)
def test_generated_code_computes_what_eager_does(name):
    call = {"lengths": [5, 2, 4], "resets": torch.tensor([0, 0, 1, 0, 0]).bool().repeat(3, 1).T}
    results = []
    for engine in ("eager", "cpu"):
        layer = make(coupled(cells.GRU(3, 4), FORMS[name], 2), engine=engine)
        (x,) = inputs(randn(5, 3, 3))
        wrt = [x, *layer.parameters()]
        results.append(measure(lambda: layer(x, **call), wrt))  # noqa: B023
    assert_close(results[1], results[0])


TRITON = {
    "mogrifier": Mogrifier(cells.LSTM(3, 5), 3, 2),
    "hyperlstm": HyperLSTM(3, 5, 4, 2, layer_norm=True),
    "full": Coupled(cells.GRU(3, 4), (Full(),), cells.Elman(7, 2)),
    "lowrank": Coupled(cells.GRU(3, 4), (LowRank(rank=2),), cells.Elman(7, 2)),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", TRITON)
def test_a_triton_kernel_computes_what_eager_does(name, device):
    ours = make(TRITON[name], engine="triton", dtype=torch.float32, device=device)
    oracle = make(TRITON[name], engine="eager", device=device)
    oracle.load_state_dict(ours.state_dict())
    found = []
    for layer in (ours, oracle):
        (x,) = inputs(randn(2, 3, 3, dtype=torch.float32).to(next(layer.parameters())))
        wrt = [x, *layer.parameters()]
        found.append(measure(lambda: layer(x, lengths=[2, 1, 2]), wrt))  # noqa: B023
    assert_close(found[0], found[1], 1e-5)


@pytest.mark.parametrize("name", EVERY)
def test_around_any_unit_it_starts_as_that_unit(name):
    torch.manual_seed(0)
    layer = Recurrent(coupled(EVERY[name], FORMS["chained"]), dtype=torch.float64)
    plain = Recurrent(EVERY[name], dtype=torch.float64)
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k in plain.state_dict()})
    x = randn(5, 3, 3)
    assert_close(layer(x)[0], plain(x)[0])


@pytest.mark.parametrize("embedding", [0, 2])
@pytest.mark.parametrize("name", FORMS)
def test_after_two_updates_gradient_has_reached_every_weight(name, embedding):
    torch.manual_seed(0)
    layer = Recurrent(coupled(cells.LSTM(3, 4, peephole=True), FORMS[name], embedding))
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(3 if embedding else 2):
        optimizer.zero_grad()
        layer(torch.randn(6, 4, 3))[0].square().sum().backward()
        optimizer.step()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0, name


def test_forms_reach_biases_and_vectors_that_are_named():
    unit = cells.LSTM(3, 4, peephole=True)
    cell = coupled(unit, (Scale(on=("hh", "bias_hh", "peep_i")),))
    made = {name.removeprefix("make_") for name in cell.maps if name.startswith("make_")}
    assert made == {"columns_hh", "shift_bias_hh", "shift_peep_i"}
    with pytest.raises(ValueError, match="Did you mean 'peep_i'"):
        coupled(unit, (Scale(on=("peep_ii",)),))


def test_every_number_is_refused_where_that_takes_too_much_memory():
    with pytest.raises(ValueError, match=r"not 4,000,000.*GB.*'lowrank'"):
        coupled(cells.LSTM(1000, 1000), (Full(),))


@pytest.mark.medium
def test_second_derivatives_are_right():
    layer = make(coupled(cells.GRU(2, 2), FORMS["chained"]), engine="cpu")
    x = randn(3, 1, 2).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: layer(x)[0], (x,))


def test_its_graph_can_be_saved_and_run_again():
    cell = coupled(cells.LSTM(3, 4), FORMS["chained"])
    layer = make(cell)
    again = make(GraphCell(from_json(to_json(trace_cell(cell)))))
    again.load_state_dict(layer.state_dict())
    x = randn(4, 2, 3)
    assert_close(again(x)[0], layer(x)[0])
