"""One time step at a time: the same as a whole sequence, with and without generated code."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

import metarnn
from metarnn import Recurrent
from tests.helpers.cases import EVERY, parts

ENGINES = [pytest.param("cpu", marks=pytest.mark.medium), "eager"]


def walk(layer: Recurrent, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """All steps of x [T, ...], one by one."""
    outputs, state = [], None
    for x_t in x:
        y, state = layer.step(x_t, state)
        outputs.append(y)
    assert state is not None
    return torch.stack(outputs), parts(state)


def assert_same(found, expected) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("layers", [1, 2])
def test_steps_one_by_one_equal_the_whole_sequence(name, engine, layers):
    layer = Recurrent(EVERY[name], layers, engine=engine, dtype=torch.float64).eval()
    x = torch.randn(5, 3, layer.input_size, dtype=torch.float64)
    with torch.no_grad():
        output, state = layer(x)
        found, final = walk(layer, x)
    assert_same([found, *final], [output, *parts(state)])


def test_a_step_takes_a_single_sequence_without_a_batch():
    layer = metarnn.LSTM(4, 5, 2, engine="cpu", dtype=torch.float64).eval()
    x = torch.randn(6, 4, dtype=torch.float64)
    with torch.no_grad():
        output, state = layer(x)
        found, final = walk(layer, x)
    assert_same([found, *final], [output, *state])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_of_a_batch_first_residual_stack(engine):
    options = {"batch_first": True, "residual": True, "engine": engine, "dtype": torch.float64}
    layer = metarnn.GRU(4, 4, 3, **options).eval()
    x = torch.randn(6, 2, 4, dtype=torch.float64)
    with torch.no_grad():
        output, state = layer(x.transpose(0, 1))
        found, final = walk(layer, x)
    assert_same([found, *final], [output.transpose(0, 1), state])


def test_a_step_in_training_mode_has_gradients():
    layer = metarnn.LSTM(4, 5, dtype=torch.float64)
    x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    found, _ = walk(layer, x)
    stepped = torch.autograd.grad(found.square().sum(), [x, *layer.parameters()])
    whole = torch.autograd.grad(layer(x)[0].square().sum(), [x, *layer.parameters()])
    assert_same(stepped, whole)


def test_steps_see_weights_that_change_between_them():
    layer = metarnn.LSTM(4, 5, engine="cpu").eval()
    x = torch.randn(2, 4)
    with torch.no_grad():
        before, _ = layer.step(x)
        layer.weights(0)["weight_ih"].data.mul_(2)  # leaves no trace in the tensor's version
        after, _ = layer.step(x)
        expected, _ = layer(x.unsqueeze(0))
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, expected[0])


def test_a_step_under_autocast_is_that_of_the_eager_engine():
    layers = [metarnn.LSTM(4, 5, engine=engine).eval() for engine in ("cpu", "eager")]
    layers[1].load_state_dict(layers[0].state_dict())
    for layer in layers:
        layer.to(torch.bfloat16)
    x = torch.randn(2, 4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        (found, _), (expected, _) = (layer.step(x) for layer in layers)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("engine", ["auto", "eager", "cpu"])
def test_a_step_on_fake_tensors_has_their_shape_or_says_what_to_do(engine):
    layer, x = metarnn.LSTM(3, 4, engine=engine), torch.randn(2, 3)
    with torch.no_grad():
        layer.step(x)  # so that it is compiled
        with FakeTensorMode(allow_non_fake_inputs=True):
            if engine == "cpu":
                with pytest.raises(TypeError, match="Use engine='eager'"):
                    layer.step(x)
            else:
                assert layer.step(x)[0].shape == (2, 4)


def test_a_step_takes_weights_of_several_types():
    layer = metarnn.LSTM(4, 5, engine="cpu").eval()
    x = torch.randn(2, 4)
    with torch.no_grad():
        expected, _ = layer.step(x)
        layer.weight_hh_l0 = torch.nn.Parameter(layer.get_parameter("weight_hh_l0").double())
        found, _ = layer.step(x)
    torch.testing.assert_close(found, expected)


def test_a_layer_that_has_stepped_can_be_copied():
    layer = metarnn.GRU(4, 5, engine="cpu").eval()
    x = torch.randn(2, 4)
    with torch.no_grad():
        expected, _ = layer.step(x)
        found, _ = copy.deepcopy(layer).step(x)
    assert torch.equal(found, expected)


def test_what_a_step_refuses():
    with pytest.raises(ValueError, match="bidirectional"):
        metarnn.LSTM(4, 5, bidirectional=True).step(torch.zeros(2, 4))
    layer = metarnn.LSTM(4, 5, engine="cpu").eval()
    with torch.no_grad():
        with pytest.raises(ValueError, match=r"x\.shape=\(2, 3\).*input_size=4"):
            layer.step(torch.zeros(2, 3))
        with pytest.raises(ValueError, match=r"x\.shape=\(1, 2, 4\)"):
            layer.step(torch.zeros(1, 2, 4))
        with pytest.raises(ValueError, match=r"state\[1\]\.shape"):
            layer.step(torch.zeros(2, 4), (torch.zeros(1, 2, 5), torch.zeros(1, 2, 6)))
