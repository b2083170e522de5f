"""First and second derivatives against finite differences."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from tests.helpers.cases import (
    COMBINED,
    EVERY,
    OPTIONS,
    RUNNABLE,
    engines,
    make,
    parts,
    randn,
    random_state,
)
from tests.helpers.compare import assert_close, inputs

pytestmark = pytest.mark.medium

T, B = 3, 2


def function_of(layer, **keywords):
    """A layer as a function of x, its state's parts and its parameters, and a point to try.

    The squares of the state come out too: gradcheck stumbles over an input that nothing reads,
    as the last output of an SRU is not.
    """
    names = [name for name, _ in layer.named_parameters()]
    state = random_state(layer, B)
    point = inputs(randn(T, B, layer.input_size), *state, *layer.parameters())

    def function(x, *tensors):
        start, weights = tensors[: len(state)], tensors[len(state) :]
        named = dict(zip(names, weights, strict=True))
        output, final = functional_call(layer, named, (x, start), keywords)
        return output, *parts(final), *(part.square() for part in start)

    return function, tuple(point)


@pytest.mark.parametrize("name", COMBINED)
def test_first_and_second_derivatives_of_every_cell_and_option(name):
    function, point = function_of(make(OPTIONS[name]))
    assert gradcheck(function, point, fast_mode=True)
    assert gradgradcheck(function, point, fast_mode=True)


# A loop in torch, as eager is, has been tried with every option.
@pytest.mark.parametrize(("name", "engine"), [each for each in RUNNABLE if each[1] != "eager"])
def test_first_and_second_derivatives_by_every_engine(name, engine):
    function, point = function_of(make(EVERY[name], engine=engine), lengths=[2, 3])
    assert gradcheck(function, point, fast_mode=True)
    assert gradgradcheck(function, point, fast_mode=True)


@pytest.mark.parametrize("name", EVERY)
def test_derivatives_through_directions_lengths_and_resets(name):
    resets = torch.tensor([[False, True], [True, False], [False, False]])
    layer = make(EVERY[name], bidirectional=True)
    function, point = function_of(layer, lengths=[2, 3], resets=resets)
    assert gradcheck(function, point, fast_mode=True)
    assert gradgradcheck(function, point, fast_mode=True)


@pytest.mark.parametrize("name", ["elman", "lstm", "gru"])
def test_derivatives_of_a_native_stack_with_lengths(name):
    layer = make(EVERY[name], 2, bidirectional=True, engine="native")
    function, point = function_of(layer, lengths=[2, 3])
    assert gradcheck(function, point, fast_mode=True)
    assert gradgradcheck(function, point, fast_mode=True)


@pytest.mark.parametrize("name", ["lstm", "gru", "qrnn-2", "own"])
def test_every_single_derivative(name):
    """Not along random directions but one by one."""
    for engine in engines(EVERY[name]):
        function, point = function_of(make(EVERY[name].resized(1), engine=engine))
        assert gradcheck(function, point)


@pytest.mark.parametrize("name", EVERY)
def test_derivatives_with_feedback_free_running_and_taught(name):
    layer = make(EVERY[name], feedback=True)
    function, point = function_of(layer)
    assert gradgradcheck(function, point, fast_mode=True)
    teacher = randn(T, B, EVERY[name].output_size).requires_grad_()
    function, point = function_of(layer, teacher=teacher)
    assert gradgradcheck(function, point, fast_mode=True)


@pytest.mark.parametrize("name", ["lstm", "gru", "elman"])
def test_second_derivatives_where_an_input_depends_on_a_weight(name):
    """A path from weight to loss through x as well is counted once."""

    def second(engine):
        layer = make(EVERY[name], engine=engine)
        weight = layer.weight_hh_l0
        x = randn(T, B, 3) * weight.sum()
        loss = layer(x)[0].square().sum()
        (first,) = torch.autograd.grad(loss, weight, create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), weight)

    for engine in engines(EVERY[name]):
        assert_close(second(engine), second("eager"))


@pytest.mark.parametrize("name", ["lstm", "gru", "elman"])
def test_gradients_where_only_some_tensors_need_them_or_are_used(name):
    for wanted in ("x", "state", "weight_hh_l0"):
        results = []
        for engine in engines(EVERY[name]):
            layer = make(EVERY[name], engine=engine).requires_grad_(False)
            tensors = {"x": randn(T, B, 3), "state": random_state(layer, B)[0]}
            state = (tensors["state"], *random_state(layer, B)[1:])
            tensors["weight_hh_l0"] = layer.weight_hh_l0
            tensors[wanted].requires_grad_()
            _, final = layer(tensors["x"], state)
            results.append(torch.autograd.grad(parts(final)[0].sum(), tensors[wanted]))
        for found in results:
            assert_close(found, results[-1])  # eager comes last
