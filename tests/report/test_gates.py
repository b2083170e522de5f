"""Gates are what the equations say."""

import pytest
import torch

import metarnn
from metarnn import cells
from metarnn.hyper import watch
from metarnn.report.gates import activity
from metarnn.report.reading import reading


def test_gates_of_an_lstm_are_those_of_its_equations():
    torch.manual_seed(0)
    layer = metarnn.LSTM(3, 5)
    x = torch.randn(6, 2, 3)
    found = activity(layer, x)
    h, c = torch.zeros(2, 5), torch.zeros(2, 5)
    w = dict(layer.named_parameters())
    for t in range(6):
        z = x[t] @ w["weight_ih_l0"].T + w["bias_ih_l0"] + h @ w["weight_hh_l0"].T + w["bias_hh_l0"]
        i, f, g, o = z.chunk(4, -1)
        for name, gate in (("i", i), ("f", f), ("o", o)):
            torch.testing.assert_close(found[name][t], gate.sigmoid())
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()


def test_gates_of_a_gru_give_its_states():
    torch.manual_seed(0)
    layer = metarnn.GRU(3, 5, engine="eager")
    x = torch.randn(6, 2, 3)
    found = activity(layer, x)
    assert sorted(found) == ["r", "z"]
    w, h = dict(layer.named_parameters()), torch.zeros(2, 5)
    states, _ = layer(x)
    for t in range(6):
        a = x[t] @ w["weight_ih_l0"].T + w["bias_ih_l0"]
        b = h @ w["weight_hh_l0"].T + w["bias_hh_l0"]
        torch.testing.assert_close(found["r"][t], (a[:, :5] + b[:, :5]).sigmoid())
        torch.testing.assert_close(found["z"][t], (a[:, 5:10] + b[:, 5:10]).sigmoid())
        h = states[t]


def test_gates_of_a_unit_with_generated_weights_are_found_with_what_was_generated():
    torch.manual_seed(0)
    layer = metarnn.MetaRecurrent(cells.LSTM(3, 5), context="step", engine="eager")
    for weight in layer.parameters():  # so that what is generated is not 0, as at the start
        torch.nn.init.normal_(weight, std=0.5)
    x = torch.randn(6, 2, 3)
    with watch() as records:
        y, _ = layer(x)
    found = activity(layer, x, records[0].numbers)
    assert len(found) == 3
    # h_t = o_t tanh(c_t), so no output is beyond its gate.
    assert any(bool((y.abs() <= gate + 1e-6).all()) for gate in found.values())
    plain = activity(layer, x, {n: torch.zeros_like(d) for n, d in records[0].numbers.items()})
    assert not any(found[name].allclose(plain[name]) for name in found)


def test_a_window_of_inputs_is_refused():
    with pytest.raises(ValueError, match="window"):
        activity(metarnn.Recurrent(cells.QRNN(3, 4, window=2)), torch.randn(5, 2, 3))


def test_what_a_layer_read_is_noted_and_the_model_left_as_it_was():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = metarnn.GRU(3, 4, batch_first=True, engine="eager")

        def forward(self, x):
            return self.layer(2 * x, lengths=torch.tensor([5, 4]))

    model, x = Model(), torch.randn(2, 5, 3)
    found = reading(model, lambda: model(x))
    assert found is not None
    torch.testing.assert_close(found.x, 2 * x.transpose(0, 1))
    assert found.arguments["lengths"].tolist() == [5, 4]
    assert model.training
    assert not model.layer._forward_pre_hooks


def test_the_layer_that_generates_weights_is_the_one_to_look_at():
    plain = metarnn.GRU(3, 3, engine="eager")
    meta = metarnn.MetaRecurrent(cells.GRU(3, 4), context="step", engine="eager")
    model = torch.nn.ModuleList([plain, meta])
    x = torch.randn(5, 2, 3)
    found = reading(model, lambda: meta(plain(x)[0]))
    assert found is not None
    assert found.layer is meta
    assert found.generates
    assert set(found.numbers) == set(meta.cells[0].extra_inputs)


def test_a_model_without_recurrent_layers_reads_nothing():
    model = torch.nn.Linear(2, 2)
    assert reading(model, lambda: model(torch.randn(3, 2))) is None
