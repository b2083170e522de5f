import inspect
from dataclasses import FrozenInstanceError

import pytest
import torch

import metarnn
from metarnn import Cell, Map, Theta, cells
from metarnn.cells import shapes
from tests.helpers import own
from tests.helpers.cases import EVERY


def ones(cell: Cell) -> dict[str, torch.Tensor]:
    return {name: torch.ones(shape) for name, shape in shapes(cell).items()}


@pytest.mark.parametrize("name", cells.CELLS)
def test_a_cell_is_found_by_its_name(name):
    options = {"outputs": 2} if name == "jordan" else {}
    assert metarnn.cell(name, 3, 4, **options) == cells.CELLS[name](3, 4, **options)


@pytest.mark.parametrize("cell", EVERY.values(), ids=EVERY)
def test_a_cell_is_data_that_holds_no_parameters(cell):
    assert cell == type(cell)(**vars(cell))
    assert hash(cell) == hash(type(cell)(**vars(cell)))
    assert not any(isinstance(value, torch.Tensor) for value in vars(cell).values())
    with pytest.raises(FrozenInstanceError):
        cell.hidden_size = 7


@pytest.mark.parametrize("cell", EVERY.values(), ids=EVERY)
def test_a_step_takes_any_leading_dimensions(cell):
    theta = Theta(cell, ones(cell))
    for leading in [(), (2,), (2, 3, 1)]:
        drive = cell.drive(theta, torch.ones(*leading, cell.window * cell.input_size))
        state = cell.step(theta, drive, tuple(torch.ones(*leading, n) for n in cell.states))
        assert [s.shape for s in state] == [(*leading, n) for n in cell.states]
        assert cell.output(theta, drive, state).shape == (*leading, cell.output_size)


def test_weights_come_in_the_order_of_torch():
    torch_names = [name for name, _ in torch.nn.LSTM(3, 4, proj_size=2).named_parameters()]
    assert [f"{name}_l0" for name in shapes(cells.LSTM(3, 4, proj_size=2))] == torch_names


def test_theta_scales_the_inputs_of_a_map_but_not_its_bias():
    cell = cells.Elman(2, 3)
    weights = ones(cell) | {"bias_hh": torch.full((3,), 10.0)}
    theta = Theta(cell, weights, {"hh": torch.tensor([0.0, 0.0, 2.0])})
    assert theta.hh(torch.tensor([5.0, 6.0, 7.0])).tolist() == [24.0] * 3
    assert theta.ih(torch.ones(2)).tolist() == [3.0] * 3


def test_theta_refuses_weights_that_are_not_complete_and_names_that_are_not_declared():
    cell = cells.Elman(2, 3)
    weights = ones(cell)
    del weights["bias_hh"]
    with pytest.raises(ValueError, match=r"weights=.*bias_hh"):
        Theta(cell, weights)
    with pytest.raises(AttributeError, match=r"theta\.forget.*ih"):
        _ = Theta(cell, ones(cell)).forget


def test_two_weights_of_one_name_are_refused():
    class Twice(Cell):
        @property
        def maps(self):
            return {"ih": Map(self.input_size, self.hidden_size)}

        @property
        def vectors(self):
            return {"ih": 3}

    with pytest.raises(ValueError, match="vectors='ih'"):
        shapes(Twice(2, 3))


@pytest.mark.parametrize("kind", [own.Leaky, own.Average])
def test_the_cells_that_stand_for_a_users_own_have_at_most_15_lines(kind):
    lines = [line for line in inspect.getsource(kind).splitlines() if line.strip()]
    assert len(lines) <= 15


def test_a_cell_that_forgets_its_methods_is_told_which():
    with pytest.raises(NotImplementedError, match="step"):
        metarnn.Recurrent(type("Empty", (Cell,), {})(2, 3))
    with pytest.raises(NotImplementedError, match="affine"):
        metarnn.Recurrent(type("Empty", (metarnn.LinearCell,), {})(2, 3))
