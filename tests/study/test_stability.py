"""Models that explode on long text are recognised."""

import pytest
import torch

from metarnn.layers import GRU, RNN
from metarnn.study.stability import GROWS, gradient_growth
from metarnn.tasks.language import LanguageModel


def model_of(layer):
    torch.manual_seed(0)
    return LanguageModel(7, layer, embedding=4)


@pytest.mark.parametrize("gain", [0.9, 1.02])
def test_growth_is_the_power_of_a_linear_recurrence(gain):
    """tanh around zero: ∂h_T/∂h_t = gain^(T-t), so norms fall or grow by gain each step back."""
    steps = 81
    model = model_of(RNN(4, 8)).double()
    with torch.no_grad():
        for name, parameter in model.layers[0].named_parameters():
            if "weight_hh" in name:
                parameter.copy_(gain * torch.eye(8, dtype=torch.float64))
            elif "bias" in name:
                parameter.zero_()
        model.get_parameter("embedding.weight").zero_()
    growth = gradient_growth(model, torch.randint(0, 7, (steps, 3)))
    assert growth == pytest.approx(gain ** (3 * (steps - 1) / 4), rel=1e-6)


def test_a_new_gru_forgets_and_an_exploding_one_is_seen():
    model = model_of(GRU(4, 8))
    tokens = torch.randint(0, 7, (200, 2))
    assert gradient_growth(model, tokens) < 1
    model = model_of(RNN(4, 8))
    with torch.no_grad():
        for name, parameter in model.layers[0].named_parameters():
            if "weight_hh" in name:
                parameter.copy_(torch.nn.init.orthogonal_(torch.empty(8, 8)) * 1.3)
        model.get_parameter("embedding.weight").zero_()
    assert gradient_growth(model, tokens) > GROWS


def test_nothing_of_the_model_is_changed():
    model = model_of(GRU(4, 8)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradient_growth(model, torch.randint(0, 7, (20, 2)))
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
