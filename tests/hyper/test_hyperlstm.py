"""HyperLSTM against the equations of Ha, Dai and Le 2016, written out."""

import numpy as np
import pytest
import torch

import metarnn
from metarnn import Recurrent
from metarnn.hyper import HyperLSTM
from tests.helpers.cases import make, randn
from tests.helpers.compare import assert_close
from tests.helpers.equations import arrays, σ

GATES = "ifgo"


def norm(w, prefix, y, x, layer_norm):
    if not layer_norm:
        return x
    x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    return w[f"{prefix}gain_{y}"] * x + w[f"{prefix}shift_{y}"]


def lstm(w, prefix, sums, c, layer_norm):
    i, f, g, o = (norm(w, prefix, y, sums[y], layer_norm) for y in GATES)
    c = σ(f) * c + σ(i) * np.tanh(g)
    return σ(o) * np.tanh(norm(w, prefix, "c", c, layer_norm)), c


@pytest.mark.parametrize("engine", ["eager", pytest.param("cpu", marks=pytest.mark.medium)])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_it_computes_the_equations_of_the_paper(layer_norm, engine):
    H, E, N = 4, 5, 2
    cell = HyperLSTM(3, H, hyper_size=E, embedding=N, layer_norm=layer_norm)
    layer = make(cell, engine=engine)
    w = arrays(layer.weights(0))
    x = randn(6, 1, 3)

    h, c, ĥ, ĉ, expected = np.zeros(H), np.zeros(H), np.zeros(E), np.zeros(E), []
    for x_t in x[:, 0].numpy():
        seen = np.concatenate([x_t, h])
        sums = w["weight_hyper_ih"] @ seen + w["weight_hyper_hh"] @ ĥ + w["bias_hyper_ih"]
        ĥ, ĉ = lstm(w, "hyper_", dict(zip(GATES, np.split(sums, 4), strict=True)), ĉ, layer_norm)
        made = {}
        for k, y in enumerate(GATES):
            of_z, of_y = slice(k * N, (k + 1) * N), slice(k * H, (k + 1) * H)

            def scale(name):
                embed, bias = w[f"weight_embed_rows_{name}"], w[f"bias_embed_rows_{name}"]
                z = embed[of_z] @ ĥ + bias[of_z]  # noqa: B023
                return w[f"weight_make_rows_{name}_{k}"] @ z  # noqa: B023

            z_b = w["weight_embed_shift_bias_ih"][of_z] @ ĥ
            made[y] = (
                scale("hh") * (w["weight_hh"][of_y] @ h)
                + scale("ih") * (w["weight_ih"][of_y] @ x_t)
                + w[f"weight_make_shift_bias_ih_{k}"] @ z_b
                + w["bias_ih"][of_y]
            )
        h, c = lstm(w, "", made, c, layer_norm)
        expected.append(h)
    assert_close(layer(x)[0][:, 0], torch.tensor(np.array(expected)))


def test_it_starts_as_the_paper_has_it():
    layer = Recurrent(HyperLSTM(3, 6, 5, 4))
    w = layer.weights(0)
    assert (w["weight_embed_rows_hh"] == 0).all()
    assert (w["bias_embed_rows_ih"] == 1).all()
    assert (w["weight_make_rows_hh_2"] == 0.1 / 4).all()
    assert (w["weight_make_shift_bias_ih_1"] == 0).all()
    assert (w["bias_ih"][6:12] == 1).all()
    assert (w["bias_hyper_ih"][5:10] == 1).all()
    gate = w["weight_hh"][:6]
    torch.testing.assert_close(gate @ gate.T, torch.eye(6), atol=1e-5, rtol=0)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_after_two_updates_gradient_has_reached_every_weight(layer_norm):
    torch.manual_seed(0)
    layer = Recurrent(HyperLSTM(3, 6, 5, 4, layer_norm))
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        layer(torch.randn(6, 4, 3))[0].square().sum().backward()
        optimizer.step()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0, name


def test_it_is_a_cell_by_name_and_stacks():
    cell = metarnn.cell("hyperlstm", 3, 4, hyper_size=5, layer_norm=True)
    assert cell == HyperLSTM(3, 4, 5, layer_norm=True)
    assert cell.resized(7) == HyperLSTM(7, 4, 5, layer_norm=True)
    output, state = Recurrent(cell, 2)(torch.randn(3, 2, 3))
    assert output.shape == (3, 2, 4)
    assert [part.shape[-1] for part in state] == [4, 4, 5, 5]
