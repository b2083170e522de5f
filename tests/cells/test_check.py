import re
from typing import Any

import pytest

import metarnn
from metarnn import cells
from metarnn.cells import check

NAN, INF = float("nan"), float("inf")
WRONG: list[Any] = [3, 4.0, 5]


@pytest.mark.parametrize(
    ("call", "argument", "value", "expected"),
    [
        (lambda: metarnn.cell("lstn", 3, 4), "name", "lstn", "'lstm'"),
        (lambda: metarnn.cell("transformer", 3, 4), "name", "transformer", "'gru'"),
        (lambda: metarnn.cell(WRONG[0], 3, 4), "name", 3, "'gru'"),
        (lambda: cells.Elman(-1, 4), "input_size", -1, "at least 0"),
        (lambda: cells.Elman(3, 0), "hidden_size", 0, "at least 1"),
        (lambda: cells.Elman(3, WRONG[1]), "hidden_size", 4.0, "whole number"),
        (lambda: cells.Elman(3, True), "hidden_size", True, "whole number"),
        (lambda: cells.Elman(3, 4, "tanhh"), "nonlinearity", "tanhh", "Did you mean 'tanh'"),
        (lambda: cells.Elman(3, 4, WRONG[2]), "nonlinearity", 5, "'relu'"),
        (lambda: cells.Jordan(3, 4, 0), "outputs", 0, "at least 1"),
        (
            lambda: cells.Jordan(3, 4, 2, output_nonlinearity="soft"),
            "output_nonlinearity",
            "soft",
            "'softplus'",
        ),
        (lambda: cells.LSTM(3, 4, 4), "proj_size", 4, "hidden_size=4"),
        (lambda: cells.LSTM(3, 4, -1), "proj_size", -1, "at least 0"),
        (lambda: cells.LSTM(3, 4, forget_bias=NAN), "forget_bias", NAN, "finite"),
        (lambda: cells.LSTM(3, 4, forget_bias=INF), "forget_bias", INF, "finite"),
        (lambda: cells.GRU(3, 4, reset="During"), "reset", "During", "'before'"),
        (lambda: cells.QRNN(3, 4, window=0), "window", 0, "at least 1"),
        (lambda: cells.QRNN(3, 4, pooling="of"), "pooling", "of", "'ifo'"),
        (lambda: cells.SRU(3, 4, version=3), "version", 3, "1 or 2"),
        (lambda: cells.SRU(3, 4, activation="relu"), "activation", "relu", "'tanh'"),
        (lambda: cells.SRU(3, 4, highway_bias=NAN), "highway_bias", NAN, "finite"),
        (lambda: cells.ONLSTM(3, 4, chunk=3), "chunk", 3, "hidden_size=4"),
        (lambda: cells.ONLSTM(3, 4, forget_bias=NAN), "forget_bias", NAN, "finite"),
        (lambda: check.probability("p", NAN), "p", NAN, "between 0 and 1"),
        (lambda: check.probability("p", True), "p", True, "between 0 and 1"),
    ],
)
def test_a_bad_option_is_refused_by_name_with_its_value_and_what_was_expected(
    call, argument, value, expected
):
    with pytest.raises(ValueError, match=re.escape(f"{argument}={value!r}: expected")) as raised:
        call()
    assert expected in str(raised.value)


def test_good_options_are_handed_back():
    assert check.size("n", 0, least=0) == 0
    assert check.number("n", 2) == 2.0
    assert [check.probability("p", p) for p in (0, 1, 0.5)] == [0, 1, 0.5]
    assert check.one_of("n", "a", iter("ab")) == "a"
