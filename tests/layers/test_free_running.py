"""x=None, steps=T: s_t = f(s_{t-1})."""

import numpy as np
import pytest
import torch

from metarnn import Recurrent
from tests.helpers import equations
from tests.helpers.cases import EVERY, make, parts, randn, random_state
from tests.helpers.compare import assert_close


@pytest.mark.parametrize("input_size", [0, 3])
@pytest.mark.parametrize("name", EVERY)
def test_without_inputs_it_iterates_the_step(name, input_size):
    cell = EVERY[name].resized(input_size)
    layer = make(cell)
    state = random_state(layer, 2)
    output, final = layer(None, state, steps=5)
    assert output.shape == (5, 2, cell.output_size)
    w = equations.arrays(layer.weights(0))
    for b in range(2):
        start = [part[0, b].numpy() for part in state]
        y, end = equations.sequence(cell, w, np.zeros((5, input_size)), start)
        assert_close(output[:, b], torch.from_numpy(y))
        assert_close([part[0, b] for part in parts(final)], [torch.from_numpy(e) for e in end])


@pytest.mark.parametrize("name", ["lstm", "elman", "gru"])
def test_an_input_of_no_width_has_gradients_too(name):
    layer = make(EVERY[name].resized(0))
    output, _ = layer(None, random_state(layer, 2), steps=3)
    gradients = torch.autograd.grad(output.sum(), list(layer.parameters()))
    assert gradients[0].shape[-1] == 0
    assert gradients[1].abs().max() > 0
    zero_width = torch.zeros(3, 2, 0, dtype=torch.float64)
    assert_close(layer(zero_width, random_state(layer, 2))[0], output)


@pytest.mark.parametrize("name", EVERY)
def test_an_input_of_no_width_can_be_initialised(name):
    for init in ("orthogonal", "torch"):
        layer = Recurrent(EVERY[name].resized(0), 2, init=init)
        assert layer(steps=3)[0].isfinite().all()


def test_without_a_state_the_batch_is_one_and_with_one_its_size_counts():
    layer = make(EVERY["gru"], 2, bidirectional=True)
    assert layer(steps=4)[0].shape == (4, 1, 8)
    for given in (randn(4, 5, 4), randn(1, 5, 4), randn(5, 4)):
        assert layer(None, given, steps=4)[0].shape == (4, 5, 8)
    assert make(EVERY["gru"], batch_first=True)(None, randn(5, 4), steps=3)[0].shape == (5, 3, 4)


def test_lengths_and_resets_without_inputs():
    layer = make(EVERY["lstm"])
    state = random_state(layer, 2)
    resets = torch.zeros(4, 2, dtype=torch.bool)
    resets[1, 0] = True
    call = {"lengths": [4, 2], "resets": resets}
    zeros = torch.zeros(4, 2, 3, dtype=torch.float64)
    assert_close(layer(None, state, steps=4, **call), layer(zeros, state, **call))


@pytest.mark.parametrize("name", ["elman", "lstm"])
def test_feedback_alone_makes_a_sequence(name):
    layer = make(EVERY[name].resized(0), feedback=True)
    state = random_state(layer, 2)
    output, _ = layer(None, state, steps=3)
    unit, w = layer.cell.unit, equations.arrays(layer.weights(0))
    for b in range(2):
        *inner, y = (part[0, b].numpy() for part in state)
        for t in range(3):
            y, inner = equations.step(unit, w, y, inner)
            assert_close(output[t, b], torch.from_numpy(y))
