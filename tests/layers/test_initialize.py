import math

import pytest
import torch

import metarnn
from metarnn import Recurrent, cells
from tests.helpers.cases import EVERY, OPTIONS
from tests.helpers.compare import assert_close


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", EVERY)
def test_each_gate_of_a_recurrent_map_is_orthogonal(name, dtype):
    layer = Recurrent(EVERY[name], 2, bidirectional=True, dtype=dtype)
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-12, torch.bfloat16: 2**-6}[dtype]
    for k, direction in layer.rows():
        cell, weights = layer.cells[k], layer.weights(k, direction)
        for name, m in cell.maps.items():
            for gate in weights[f"weight_{name}"].double().split(m.gates):
                if m.recurrent:
                    tall = gate if gate.shape[0] >= gate.shape[1] else gate.T
                    assert_close(tall.T @ tall, torch.eye(tall.shape[1]).double(), tolerance)
                else:  # Xavier's bound for this gate alone
                    bound = math.sqrt(6 / (gate.shape[0] + gate.shape[1]))
                    assert 0 < gate.abs().max() <= bound * (1 + tolerance)


@pytest.mark.parametrize("name", OPTIONS)
def test_biases_and_vectors_start_where_the_cell_says(name):
    cell = OPTIONS[name]
    weights = Recurrent(cell).weights(0)
    n = cell.hidden_size
    expected = {k: torch.full_like(w, float(k.startswith("gain"))) for k, w in weights.items()}
    forget = "shift_ih" if getattr(cell, "layer_norm", False) else "bias_ih"
    coupled = getattr(cell, "coupled", False)  # no forget gate
    if isinstance(cell, cells.LSTM | cells.ONLSTM) and cell.bias and not coupled:
        expected[forget][n : 2 * n] = cell.forget_bias
    if isinstance(cell, cells.SRU) and cell.bias:
        expected["bias_gates"][n:] = cell.highway_bias
    for weight, value in weights.items():
        if not weight.startswith("weight_"):
            assert_close(value, expected[weight], 0)


@pytest.mark.parametrize("layer", [metarnn.LSTM, metarnn.ONLSTM])
def test_a_forget_gate_starts_open_as_far_as_its_bias_says(layer):
    module = layer(3, 4, forget_bias=2.5)
    total = module.bias_ih_l0 + getattr(module, "bias_hh_l0", 0)
    assert total[4:8].tolist() == [2.5] * 4
    assert not total[:4].any()
    assert not total[8:].any()


@pytest.mark.parametrize("name", EVERY)
def test_torchs_scheme_is_uniform_within_one_over_the_root_of_the_hidden_size(name):
    weights = Recurrent(EVERY[name], init="torch").weights(0)
    for weight, value in weights.items():
        if weight.startswith("gain_"):
            assert (value == 1).all()
        else:
            assert 0 < value.abs().max() <= 1 / math.sqrt(4)


@pytest.mark.parametrize("name", EVERY)
def test_the_small_scheme_halves_recurrent_maps_and_leaves_the_rest(name):
    def drawn(init):
        torch.manual_seed(0)
        return Recurrent(EVERY[name], init=init).weights(0)

    small, usual = drawn("small"), drawn("orthogonal")
    recurrent = {f"weight_{name}" for name, m in EVERY[name].maps.items() if m.recurrent}
    for weight, value in small.items():
        assert_close(value, usual[weight] / 2 if weight in recurrent else usual[weight], 0)


@pytest.mark.parametrize("init", ["orthogonal", "small", "torch"])
@pytest.mark.parametrize("name", EVERY)
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(name, init):
    def drawn(seed):
        torch.manual_seed(seed)
        return torch.cat([p.flatten() for p in Recurrent(EVERY[name], 2, init=init).parameters()])

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
