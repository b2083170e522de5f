import pytest
import torch

from metarnn import cells
from metarnn.gradients.linearize import Linearization
from metarnn.gradients.rule import ask_model
from metarnn.gradients.structure import Structure, colors
from tests.gradients.models import data, regression
from tests.helpers.cases import EVERY


def structure(cell, layers=1, **options):
    model, (x, y) = regression(cell, layers), data(1, batch=3)
    lin = Linearization(ask_model, model, (x, y), None)
    return Structure(ask_model, model, (x, y), lin, **options)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["elman", "lstm", "sru-2", "mingru", "lstm-all", "gru-before"])
def test_whatever_has_a_derivative_is_found(name):
    """No derivative, at any of many states, lies where the structure says there is none."""
    found = structure(EVERY[name], 2)
    model = regression(EVERY[name], 2)
    torch.manual_seed(0)
    seen = torch.zeros_like(found.D)
    for _ in range(5):
        x, y = torch.randn(1, 4, 3).double(), torch.randn(1, 4, 2).double()
        state = Linearization(ask_model, model, (x, y), None).after
        lin = Linearization(ask_model, model, (x, y), state)
        eye = torch.eye(lin.size).double().unsqueeze(1).expand(-1, 4, -1)
        D, _ = lin.pull(eye)
        assert D is not None
        seen |= (D != 0).any(1)
    assert not (seen & ~found.D).any()
    assert (seen == found.D).double().mean() > 0.9  # nor is much found that is never there


def test_an_elementwise_cell_has_a_diagonal_and_a_dense_one_all():
    assert torch.equal(structure(cells.MinGRU(3, 4)).D, torch.eye(4).bool())
    assert structure(cells.Elman(3, 4)).D.all()
    lstm = structure(cells.LSTM(3, 4)).D
    assert lstm[:, :4].all()  # h enters every gate
    assert torch.equal(lstm[:4, 4:], torch.eye(4).bool())  # c its own unit


def test_a_reach_of_n_steps_grows_with_n():
    found = structure(cells.Elman(3, 4), 2)
    name = "layer.weight_ih_l0"
    sizes = [int(found.reach(n)[name].sum()) for n in (1, 2, 3)]
    # Its own unit, and through the layer above all units there at once; then all.
    assert sizes == [4 * (1 + 4), 4 * 8, 4 * 8]
    assert int(found.reach(None)[name].sum()) == 4 * 8


def test_rows_of_one_color_can_be_told_apart():
    torch.manual_seed(0)
    for _ in range(20):
        reached = torch.rand(12, 9) < 0.2
        needed = reached & (torch.rand(12, 9) < 0.7)
        values = torch.randn(12, 9) * reached
        color = colors(needed, reached)
        sums = torch.zeros(int(color.max()) + 1, 9).index_add_(0, color, values)
        assert torch.equal(sums[color][needed], values[needed])
