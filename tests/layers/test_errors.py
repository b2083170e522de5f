"""Bad arguments are refused by name, with their value and what was expected, before any work."""

import re
from typing import Any

import pytest
import torch

import metarnn
from metarnn import Cell, Map, Recurrent, cells
from tests.helpers.cases import EVERY, make, randn

NAN = float("nan")
WRONG: list[Any] = [0.5, "lstm"]
X = randn(4, 2, 3)
LSTM, GRU, QRNN = EVERY["lstm"], EVERY["gru"], EVERY["qrnn-2"]


def refused(call, *words, error: Any = ValueError):
    with pytest.raises(error) as raised:
        call()
    message = str(raised.value)
    for word in words:
        assert str(word) in message, message


PROBABILITIES = [
    (kind, value)
    for kind in (
        "dropout",
        "variational_dropout",
        "input_dropout",
        "recurrent_dropout",
        "zoneout",
        "weight_drop",
    )
    for value in (NAN, -0.1, 1.5, "half", True)
]


@pytest.mark.parametrize(("kind", "value"), PROBABILITIES)
def test_a_probability_that_is_none(kind, value):
    refused(lambda: Recurrent(LSTM, 2, **{kind: value}), f"{kind}={value!r}", "between 0 and 1")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"zoneout": (0.1, NAN)}, ["zoneout=nan", "between 0 and 1"]),
        ({"zoneout": (0.1,)}, ["zoneout=(0.1,)", "each of 2 state parts"]),
        ({"weight_drop": {"hh": NAN}}, ["weight_drop['hh']=nan", "between 0 and 1"]),
        ({"weight_drop": {"xh": 0.5}}, ["weight_drop='xh'", "'ih', 'hh'"]),
        ({"merge": "add"}, ["merge='add'", "'concat', 'sum'"]),
        ({"engine": "cuda"}, ["engine='cuda'", "'auto'", "'eager'"]),
        ({"init": "zeros"}, ["init='zeros'", "'orthogonal', 'small', 'torch'"]),
        ({"num_layers": 0}, ["num_layers=0", "at least 1"]),
        ({"num_layers": 1.5}, ["num_layers=1.5", "whole number"]),
        ({"checkpoint_every": -1}, ["checkpoint_every=-1", "at least 0"]),
    ],
)
def test_an_option_of_the_layer(options, words):
    refused(lambda: Recurrent(LSTM, **options), *words)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: metarnn.LSTM(3, 4, forget_bias=NAN), ["forget_bias=nan", "finite"]),
        (lambda: metarnn.LSTM(3, 4, proj_size=9), ["proj_size=9", "hidden_size=4"]),
        (lambda: metarnn.RNN(3, 4, nonlinearity="step"), ["nonlinearity='step'", "'tanh'"]),
        (lambda: metarnn.GRU(WRONG[0], 4), ["input_size=0.5", "whole number"]),
        (lambda: metarnn.Recurrent(WRONG[1]), ["cell='lstm'", "a Cell", "metarnn.cell('lstm'"]),
        (lambda: metarnn.QRNN(3, 4, recurrent_dropout=0.5), ["recurrent_dropout=0.5", "QRNN"]),
        (lambda: metarnn.MinGRU(3, 4, weight_drop=0.5), ["weight_drop=0.5", "MinGRU", "'ih'"]),
    ],
)
def test_an_option_of_the_cell(build, words):
    refused(build, *words)


def as_meta(*shape):
    return torch.zeros(*shape, dtype=torch.float64, device="meta")


@pytest.mark.parametrize(
    ("cell", "call", "words"),
    [
        (LSTM, {"x": randn(4, 2, 5)}, ["x.shape=(4, 2, 5)", "input_size=3"]),
        (LSTM, {"x": randn(3)}, ["x.shape=(3,)", "[time, batch, input]"]),
        (LSTM, {"x": randn(0, 2, 3)}, ["x.shape=(0, 2, 3)", "at least one time step"]),
        (LSTM, {"x": X.float()}, ["x.dtype=torch.float32", "torch.float64", "x.to("]),
        (LSTM, {"x": X.long()}, ["x.dtype=torch.int64", "torch.float64"]),
        (LSTM, {"x": as_meta(4, 2, 3)}, ["x.device='meta'", "the layer's, cpu", "x.to("]),
        (LSTM, {"lengths": [5, 2]}, ["lengths=[5, 2]", "at most the 4 time steps"]),
        (LSTM, {"lengths": [4, 0]}, ["lengths=[4, 0]", "at least 1"]),
        (LSTM, {"lengths": [4, -1]}, ["lengths=[4, -1]", "at least 1"]),
        (LSTM, {"lengths": [4, 2, 1]}, ["lengths.shape=(3,)", "(2,)"]),
        (LSTM, {"lengths": 4}, ["lengths.shape=()", "(2,)"]),
        (LSTM, {"lengths": [4.0, 2.0]}, ["lengths.dtype=torch.float32", "whole numbers"]),
        (LSTM, {"lengths": [True, True]}, ["lengths.dtype=torch.bool", "whole numbers"]),
        (LSTM, {"x": X[:, 0], "lengths": [4]}, ["lengths=[4]", "one sequence"]),
        (LSTM, {"resets": torch.zeros(2, 4).bool()}, ["resets.shape=(2, 4)", "[4, 2]"]),
        (
            LSTM,
            {"resets": torch.zeros(4, 2, device="meta").bool()},
            ["resets.device='meta'", "cpu"],
        ),
        (LSTM, {"state": randn(1, 2, 4)}, ["state='1 part(s)'", "2, of widths (4, 4)"]),
        (GRU, {"state": (randn(1, 2, 4),) * 2}, ["state='2 part(s)'", "1, of widths (4,)"]),
        (GRU, {"state": randn(1, 2, 5)}, ["state.shape=(1, 2, 5)", "[1, 2, 4]"]),
        (GRU, {"state": randn(1, 3, 4)}, ["state.shape=(1, 3, 4)", "[1, 2, 4]"]),
        (GRU, {"state": randn(2, 2, 4)}, ["state.shape=(2, 2, 4)", "[1, 2, 4]"]),
        (
            LSTM,
            {"state": (randn(1, 2, 4), randn(1, 2, 5))},
            ["state[1].shape=(1, 2, 5)", "[1, 2, 4]"],
        ),
        (GRU, {"state": randn(1, 2, 4).float()}, ["state.dtype=torch.float32", "torch.float64"]),
        (GRU, {"state": as_meta(1, 2, 4)}, ["state.device='meta'", "cpu"]),
        (QRNN, {"state": randn(1, 2, 4)}, ["state='1 part(s)'", "2, of widths (4, 3)"]),
        (GRU, {"teacher": randn(4, 2, 4)}, ["teacher", "feedback=True"]),
        (
            EVERY["jordan"],
            {"teacher": randn(4, 2, 3)},
            ["teacher.shape=(4, 2, 3)", "[4, 2, 2]"],
        ),
        (EVERY["jordan"], {"teacher": as_meta(4, 2, 2)}, ["teacher.device='meta'", "cpu"]),
        (GRU, {"steps": 4}, ["steps=4", "None where x is given"]),
        (GRU, {"x": None}, ["steps=None", "whole number"]),
        (GRU, {"x": None, "steps": 0}, ["steps=0", "at least 1"]),
    ],
)
def test_an_argument_of_a_call(cell, call, words):
    layer, call = make(cell), {"x": X, **call}
    refused(lambda: layer(**call), *words)
    refused(lambda: metarnn.explain(layer, **call), *words)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"x": [[1.0]]}, ["x", "list", "tensor"]),
        ({"state": "zeros"}, ["state", "str", "tensor"]),
        ({"state": (X, None)}, ["state", "tuple", "tensor"]),
        ({"resets": [[True, False]] * 4}, ["resets", "list", "tensor"]),
        ({"teacher": [1.0], "feedback": True}, ["teacher", "list", "tensor"]),
        ({"lengths": "long"}, ["lengths", "long", "whole numbers"]),
        ({"length": [4, 2]}, ["length"]),
    ],
)
def test_an_argument_of_the_wrong_kind(call, words):
    call = {"x": X, **call}
    layer = make(LSTM, feedback=call.pop("feedback", False))
    refused(lambda: layer(**call), *words, error=(TypeError, ValueError))


@pytest.mark.parametrize("options", [{"num_layers": 2}, {"bidirectional": True}])
def test_a_teacher_where_the_true_outputs_of_the_inner_layers_are_not_known(options):
    layer = make(GRU, feedback=True, **options)
    refused(lambda: layer(X, teacher=randn(4, 2, 4)), "teacher", "one layer in one direction")


class Wrong(Cell):
    """A cell with one mistake."""

    mistake: str

    @property
    def maps(self):
        return {"ih": Map(self.input_size, self.hidden_size)}

    def drive(self, theta, x):
        return theta.ih(x)

    def step(self, theta, drive, state):
        wide = torch.cat([drive, state[0]], -1)
        made = {"widths": (wide,), "parts": (drive, drive), "bare": drive, "list": [drive]}
        return made.get(self.mistake, (drive,))

    def output(self, theta, drive, state):
        return state[0][..., :1] if self.mistake == "output" else state[0]


@pytest.mark.parametrize(
    ("mistake", "error", "words"),
    [
        ("widths", ValueError, ["Wrong.step", "(8,)", "(4,), as declared"]),
        ("parts", ValueError, ["Wrong.step", "(4, 4)", "(4,), as declared"]),
        ("bare", TypeError, ["Wrong.step", "Tensor", "a tuple of states"]),
        ("list", TypeError, ["Wrong.step", "list", "a tuple of states"]),
        ("output", ValueError, ["Wrong.output", "width 1", "output_size=4"]),
    ],
)
def test_a_cell_that_does_not_do_what_it_declares(mistake, error, words):
    refused(lambda: Recurrent(Wrong(3, 4, mistake)), *words, error=error)
    Recurrent(Wrong(3, 4, "none"))


def test_a_large_cell_is_tried_out_on_shapes_alone():
    width = 10**7  # its map alone would take 400 TB
    refused(
        lambda: Recurrent(Wrong(width, width, "output")), "Wrong.output", f"output_size={width}"
    )


def test_a_refused_call_has_drawn_no_random_numbers_and_changed_nothing():
    layer = make(LSTM, 2, dropout=0.5, zoneout=0.1)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    refused(lambda: layer(X, lengths=[9, 9]), "lengths")
    assert torch.equal(torch.get_rng_state(), before)


def test_every_refusal_reads_argument_value_expected():
    pattern = re.compile(r"^[\w.\[\]']+=.+: expected .+")
    for call in (
        lambda: metarnn.cell("lstn", 3, 4),
        lambda: make(LSTM)(randn(4, 2, 5)),
        lambda: make(LSTM)(X, lengths=[9, 9]),
        lambda: cells.LSTM(3, 4, forget_bias=NAN),
    ):
        with pytest.raises(ValueError, match=pattern):
            call()
