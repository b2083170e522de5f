"""metarnn.LSTM, GRU and RNN against torch.nn's."""

import inspect
from copy import deepcopy
from itertools import product
from typing import Any, get_overloads

import pytest
import torch
from torch import nn

import metarnn
from tests.helpers.cases import EVERY, engines, randn, randomize
from tests.helpers.compare import TOLERANCE, assert_close, assert_same, inputs, measure

KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "lstm": (metarnn.LSTM, nn.LSTM, {}),
    "lstm-proj": (metarnn.LSTM, nn.LSTM, {"proj_size": 2}),
    "gru": (metarnn.GRU, nn.GRU, {}),
    "rnn-tanh": (metarnn.RNN, nn.RNN, {}),
    "rnn-relu": (metarnn.RNN, nn.RNN, {"nonlinearity": "relu"}),
}
COMBINATIONS = [
    (kind, {"num_layers": n, "bidirectional": two, "bias": bias, "batch_first": first})
    for kind, n, two, bias, first in product(
        KINDS, (1, 2), (False, True), (True, False), (False, True)
    )
]
I, H, T, B = 3, 4, 6, 2
FITTING = [
    pytest.param(engine, marks=pytest.mark.medium) if engine == "cpu" else engine
    for engine in engines(EVERY["lstm"])
]


def both(kind: str, engine: str = "auto", dtype=torch.float64, **options):
    """(ours, torch's), with the weights that torch starts from."""
    ours, theirs, extra = KINDS[kind]
    torch.manual_seed(0)
    expected = theirs(I, H, **extra, **options, dtype=dtype)
    layer = ours(I, H, **extra, **options, dtype=dtype, engine=engine)
    layer.load_state_dict(expected.state_dict(), strict=True)
    return layer, expected


def initial(module: Any, batch: int = B):
    """A random (h,) or (h, c) for a torch module."""
    rows = module.num_layers * (2 if module.bidirectional else 1)
    widths = [getattr(module, "proj_size", 0) or H] + [H] * isinstance(module, nn.LSTM)
    dtype = next(module.parameters()).dtype
    return tuple(randn(rows, batch, n, seed=5 + k, dtype=dtype) for k, n in enumerate(widths))


def call(module, x, state, **keywords):
    return lambda: module(x, state if len(state) > 1 else state[0], **keywords)


@pytest.mark.parametrize("engine", FITTING)
@pytest.mark.parametrize(("kind", "options"), COMBINATIONS)
def test_outputs_states_and_gradients_are_those_of_torch(kind, options, engine):
    for dtype, tolerance in TOLERANCE.items():
        layer, expected = both(kind, engine, dtype, **options)
        shape = (B, T, I) if options["batch_first"] else (T, B, I)
        tensors = inputs(randn(*shape, dtype=dtype), *initial(expected))
        found, wanted = (
            measure(call(module, tensors[0], tensors[1:]), [*tensors, *module.parameters()])
            for module in (layer, expected)
        )
        assert_close(found, wanted, tolerance)


@pytest.mark.parametrize(("kind", "options"), COMBINATIONS)
def test_state_dicts_load_both_ways_in_the_order_of_torch(kind, options):
    layer, expected = both(kind, **options)
    assert list(layer.state_dict()) == list(expected.state_dict())
    assert [n for n, _ in layer.named_parameters()] == [n for n, _ in expected.named_parameters()]
    randomize(layer, seed=3)
    expected.load_state_dict(layer.state_dict(), strict=True)
    assert_same(list(layer.parameters()), list(expected.parameters()))


@pytest.mark.parametrize(("kind", "options"), COMBINATIONS)
def test_torch_initialisation_with_the_same_seed_gives_the_same_weights(kind, options):
    ours, theirs, extra = KINDS[kind]
    torch.manual_seed(4)
    expected = theirs(I, H, **extra, **options)
    torch.manual_seed(4)
    layer = ours(I, H, **extra, **options, init="torch")
    assert_same(list(layer.parameters()), list(expected.parameters()))


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn-tanh"])
def test_the_constructor_takes_what_torchs_takes(kind):
    ours, theirs, _ = KINDS[kind]
    torchs = list(inspect.signature(get_overloads(theirs.__init__)[0]).parameters.values())
    mine = list(inspect.signature(ours.__init__).parameters.values())
    positional = [p for p in mine if p.kind == p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in positional] == [p.name for p in torchs]
    assert [p.default for p in positional] == [
        0.0 if p.name == "dropout" else p.default for p in torchs
    ]
    assert all(p.default is not p.empty for p in mine if p.kind == p.KEYWORD_ONLY)


def test_the_constructor_takes_positional_arguments_in_torchs_order():
    args = (3, 4, 2, False, True, 0.0, True, 2)
    layer, expected = metarnn.LSTM(*args), nn.LSTM(*args)
    layer.load_state_dict(expected.state_dict(), strict=True)
    for name in (
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ):
        assert getattr(layer, name) == getattr(expected, name)


@pytest.mark.parametrize("engine", FITTING)
@pytest.mark.parametrize("kind", KINDS)
def test_one_sequence_without_a_batch_dimension(kind, engine):
    layer, expected = both(kind, engine, num_layers=2, bidirectional=True, batch_first=True)
    x, state = randn(T, I), tuple(s.squeeze(1) for s in initial(expected, 1))
    found, wanted = call(layer, x, state)(), call(expected, x, state)()
    assert_close(found, wanted)
    assert_close(layer(x), expected(x))


@pytest.mark.parametrize("kind", KINDS)
def test_torchs_names_of_the_arguments(kind):
    layer, expected = both(kind)
    x, state = randn(T, B, I), initial(expected)
    hx = state[0] if len(state) == 1 else state
    assert_same(layer(input=x, hx=hx), layer(x, hx))
    assert_close(layer(x, hx=hx), expected(x, hx=hx))
    layer.flatten_parameters()
    assert_close(layer.all_weights, expected.all_weights)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_an_optimiser_moves_from_one_to_the_other(kind):
    layer, expected = both(kind, num_layers=2, bidirectional=True)
    x = randn(T, B, I)

    def train(module, optimiser):
        for _ in range(3):
            optimiser.zero_grad()
            module(x)[0].square().sum().backward()
            optimiser.step()

    theirs = torch.optim.Adam(expected.parameters(), lr=0.1)
    train(expected, theirs)
    layer.load_state_dict(expected.state_dict())
    ours = torch.optim.Adam(layer.parameters(), lr=0.1)
    ours.load_state_dict(deepcopy(theirs.state_dict()))  # loading alone shares the tensors
    train(expected, theirs)
    train(layer, ours)
    assert_close(list(layer.parameters()), list(expected.parameters()), 1e-10)
    back = torch.optim.Adam(expected.parameters(), lr=0.1)
    back.load_state_dict(deepcopy(ours.state_dict()))
    train(expected, back)
    train(layer, ours)
    assert_close(list(layer.parameters()), list(expected.parameters()), 1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_drops_nothing_in_evaluation_and_scales_as_torchs_in_training(kind):
    layer, expected = both(kind, num_layers=2, dropout=0.5)
    x = randn(T, B, I)
    assert_close(layer.eval()(x), expected.eval()(x))
    nothing_left, expected = both(kind, num_layers=2, dropout=1.0)
    assert_close(nothing_left(x), expected(x))
