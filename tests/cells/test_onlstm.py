import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metarnn
from metarnn.cells.onlstm import cumax
from tests.helpers import equations
from tests.helpers.cases import randn, random_state, randomize
from tests.helpers.compare import assert_close


@given(st.lists(st.floats(-500, 500), min_size=1, max_size=8))
def test_cumax_rises_from_above_0_to_1(values):
    found = cumax(torch.tensor(values, dtype=torch.float64))
    assert (found >= 0).all()
    assert (found <= 1 + 1e-12).all()
    assert (found.diff() >= 0).all()
    assert found[-1].item() == pytest.approx(1, abs=1e-12)


def layer_of(chunk: int, **options) -> metarnn.ONLSTM:
    layer = metarnn.ONLSTM(3, 6, chunk=chunk, dtype=torch.float64, **options)
    randomize(layer)
    return layer


def expected_levels(layer, k, x, h, c):
    """d_f = Σ P(d_f = k) k with P the softmax itself, step by step, for one sequence."""
    n = layer.hidden_size // layer.cell.chunk
    w = equations.arrays(layer.weights(k))
    found = []
    for x_t in x:
        a = equations.linear(w, "ih", x_t) + equations.linear(w, "hh", h)
        pair = []
        for logits in (a[-2 * n : -n], a[-n:]):
            p = np.exp(logits) / np.exp(logits).sum()
            pair.append(sum(p[level] * level for level in range(n)))
        found.append(pair)
        _, (h, c) = equations.step(layer.cells[k], w, x_t, [h, c])
    return torch.tensor(np.array(found))


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_levels_are_the_expected_levels_of_the_master_gates(chunk):
    layer = layer_of(chunk)
    x, (h, c) = randn(5, 2, 3), random_state(layer, 2)
    d_f, d_i = layer.levels(x, (h, c))
    assert d_f.shape == d_i.shape == (1, 5, 2)
    for b in range(2):
        expected = expected_levels(layer, 0, x[:, b].numpy(), h[0, b].numpy(), c[0, b].numpy())
        assert_close(torch.stack([d_f[0, :, b], d_i[0, :, b]], -1), expected)


def test_levels_lie_between_the_lowest_and_the_highest():
    layer = layer_of(2)
    with torch.no_grad():
        layer.get_parameter("weight_ih_l0").mul_(100)
    levels = torch.stack(layer.levels(randn(200, 3, 3)))
    assert (levels >= 0).all()
    assert (levels <= 6 // 2 - 1 + 1e-12).all()
    assert levels.max() - levels.min() > 1.9  # both ends are reached


@pytest.mark.parametrize("residual", [False, True])
def test_levels_of_an_upper_layer_are_those_of_a_layer_on_the_outputs_below(residual):
    layer = layer_of(2, num_layers=3, residual=residual)
    x = randn(5, 2, 3)
    d_f, d_i = layer.levels(x)
    y = x
    for k in range(3):
        floor = metarnn.ONLSTM(y.shape[-1], 6, chunk=2, dtype=torch.float64)
        floor.load_state_dict({f"{n}_l0": w for n, w in layer.weights(k).items()})
        assert_close([d_f[k : k + 1], d_i[k : k + 1]], floor.levels(y))
        out, _ = floor(y)
        y = out + y if residual and k else out
    assert_close(layer(x)[0], y)


def test_levels_respect_resets_lengths_and_layout():
    layer = layer_of(1)
    x, state = randn(6, 2, 3), random_state(layer, 2)
    resets = torch.zeros(6, 2, dtype=torch.bool)
    resets[4] = True
    whole = torch.stack(layer.levels(x, state, resets=resets))
    head, tail = layer.levels(x[:4], state), layer.levels(x[4:])
    assert_close(whole, torch.cat([torch.stack(head), torch.stack(tail)], 2))

    short = layer.levels(x, state, lengths=[6, 3])[0]
    assert_close(
        short[:, :3, 1], layer.levels(x[:3, 1:], tuple(s[:, 1:] for s in state))[0][..., 0]
    )
    one = layer.levels(x[:, 0], tuple(s[:, 0] for s in state))
    assert_close(one, [level[..., 0] for level in layer.levels(x, state)])
    turned = layer_of(1, batch_first=True).levels(x.transpose(0, 1), state)
    assert_close([level.mT for level in turned], layer.levels(x, state))


def test_levels_in_training_are_computed_without_dropout():
    layer = layer_of(1, num_layers=2, dropout=0.9, zoneout=0.5, weight_drop=0.5)
    x = randn(6, 2, 3)
    assert_close(layer.levels(x), layer_of(1, num_layers=2).levels(x))


def test_levels_of_two_directions_are_refused():
    with pytest.raises(ValueError, match="levels"):
        layer_of(1, bidirectional=True).levels(randn(3, 1, 3))
