import math

import pytest
import torch
from torch import nn

from metarnn import LSTM, RNN
from metarnn.gradients.reach import reach
from metarnn.report.probing import Probe
from metarnn.report.reach import svg, table, words
from tests.helpers.cases import randn


def weights(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name.removeprefix("layer."): w for name, w in model.named_parameters()}


def direction(model: nn.Module) -> torch.Tensor:
    return dict(model.named_buffers())["direction"]


def elman(radius: float, nonlinearity: str = "tanh", bias: bool = True) -> Probe:
    torch.manual_seed(0)
    layer = RNN(3, 8, nonlinearity=nonlinearity, bias=bias, dtype=torch.float64)  # orthogonal
    with torch.no_grad():
        weights(layer)["weight_hh_l0"].mul_(radius)
        weights(layer)["weight_ih_l0"].mul_(0.1)
    return Probe(layer).double()


def lstm(forget_bias: float) -> Probe:
    torch.manual_seed(0)
    layer = LSTM(3, 8, forget_bias=forget_bias, dtype=torch.float64)
    with torch.no_grad():
        for name, w in layer.named_parameters():
            if name.startswith("weight"):
                w.mul_(0.3)
    return Probe(layer).double()


def test_without_a_nonlinearity_the_reach_is_that_of_powers_of_the_matrix():
    model = elman(0.9, "identity", bias=False)
    with torch.no_grad():
        weights(model)["weight_hh_l0"].add_(0.05 * randn(8, 8))
    W, v = weights(model)["weight_hh_l0"].detach(), direction(model)
    found = reach(model, randn(40, 2, 3), lags=20)
    for lag, norm in enumerate(found.norms, 1):
        expected = (torch.linalg.matrix_power(W, lag).T @ v).norm().item()
        assert norm == pytest.approx(expected, rel=1e-10)
    assert found.radius == pytest.approx(torch.linalg.eigvals(W).abs().max().item())
    # The exponents of powers of one matrix are the logarithms of its eigenvalues.
    logs = torch.linalg.eigvals(W).abs().log().sort(descending=True).values
    assert sum(found.exponents) == pytest.approx(logs.sum().item(), rel=1e-6)
    assert found.exponents[0] == pytest.approx(logs[0].item(), abs=0.03)


def test_shares_are_those_of_the_gradient_taken_apart_by_hand():
    """Of W_hh alone: the part from step k is δ_k ⊗ h_{k-1}, δ_k = ∂L/∂(W h)_k."""
    model, x = elman(0.8), randn(12, 1, 3)
    for name, w in model.layer.named_parameters():
        w.requires_grad_(name == "weight_hh_l0")
    found = reach(model, x, lags=5, ends=1)
    copies = [weights(model)["weight_hh_l0"].detach().clone().requires_grad_() for _ in range(12)]
    y = h = torch.zeros(1, 1, 8).double()
    for t in range(12):
        y, h = torch.func.functional_call(
            model.layer, {"weight_hh_l0": copies[t]}, (x[t : t + 1], h)
        )
    parts = torch.autograd.grad((y @ direction(model)).sum(), copies[-1:-7:-1])
    norms = torch.stack([part.norm() for part in parts])
    torch.testing.assert_close(torch.tensor(found.shares).double(), norms / norms.sum())


CASES = {
    "an Elman network of radius 0.5": (elman(0.5), "vanishing"),
    "an Elman network of radius 1.3": (elman(1.3, "identity"), "exploding"),
    "an LSTM with a large forget bias": (lstm(4.0), "reaches back"),
    "an LSTM that forgets": (lstm(-2.0), "vanishing"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_words_are_right(name):
    model, word = CASES[name]
    found = reach(model, randn(60, 2, 3), lags=30)
    said = words(found)
    assert said[0].startswith(word), said
    assert sum(word in line for line in said) == 1
    assert (found.gamma > 1.05) == (word == "exploding")
    assert (found.gamma < 0.9) == (word == "vanishing")
    assert math.isinf(found.horizon) or word != "exploding"


def test_a_memory_cell_has_the_rate_of_its_forget_gate():
    model = lstm(2.0)
    with torch.no_grad():
        for name, w in model.layer.named_parameters():
            if name.startswith("weight"):
                w.mul_(1e-3)
    found = reach(model, randn(60, 2, 3), lags=30)
    assert found.gamma == pytest.approx(torch.sigmoid(torch.tensor(2.0)).item(), rel=1e-2)


def test_saturated_and_dead_units_are_seen():
    model = elman(0.9)
    with torch.no_grad():
        weights(model)["weight_ih_l0"].mul_(1000)
    found = reach(model, randn(20, 2, 3))
    assert found.saturated["tanh"] > 0.9
    assert any(line.startswith("saturated") for line in words(found))
    model = elman(0.9, "relu")
    with torch.no_grad():
        weights(model)["bias_ih_l0"].fill_(-10)
        weights(model)["bias_ih_l0"][:2] = 1
    found = reach(model, randn(20, 2, 3))
    assert found.dead == pytest.approx(0.75)
    assert any(line.startswith("dead") for line in words(found))


def test_a_loss_at_the_last_step_alone_is_followed_from_there():
    layer = RNN(3, 8, dtype=torch.float64)

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, chunk, state):
            x, weight = chunk
            y, state = self.layer(x, state)
            return (y.sum(-1) * weight).sum(), state

    weight = torch.zeros(20, 2).double()
    weight[-1] = 1
    found = reach(Last(), (randn(20, 2, 3), weight), lags=10)
    assert len(found.norms) == 10
    assert min(found.norms) > 0


def test_the_radius_of_a_large_state_is_found_without_its_matrix(monkeypatch):
    model = elman(0.9)
    with torch.no_grad():
        weights(model)["weight_hh_l0"].add_(0.3 * randn(8, 8))
    whole = reach(model, randn(40, 2, 3), lags=5)
    monkeypatch.setattr("metarnn.gradients.reach.WHOLE", 4)
    monkeypatch.setattr("metarnn.gradients.reach.FEW", 4)
    assert reach(model, randn(40, 2, 3), lags=5).radius == pytest.approx(whole.radius, rel=0.05)


def test_a_gradient_that_leaves_the_range_of_numbers_is_said_to_explode():
    found = reach(elman(4.0, "identity").float(), randn(200, 1, 3).float(), lags=150)
    assert not math.isfinite(found.norms[-1])
    assert words(found)[0].startswith("exploding")
    assert found.gamma == pytest.approx(4.0, rel=1e-3)


@pytest.mark.medium
def test_table_and_picture_have_all_of_it():
    found = {name: reach(model, randn(40, 2, 3), lags=20) for name, (model, _) in CASES.items()}
    rows = table(found)
    assert rows[0][1:] == list(CASES)
    assert all(len(row) == 5 for row in rows)
    drawn = svg(found)
    assert drawn.startswith("<svg")
    assert all(f"{name}: γ" in drawn for name in CASES)


def test_two_directions_and_short_data_are_refused():
    with pytest.raises(ValueError, match="one direction"):
        reach(Probe(LSTM(3, 4, bidirectional=True)), randn(9, 2, 3))
    with pytest.raises(ValueError, match="at least 2"):
        reach(elman(0.5), randn(1, 2, 3))
