"""`metarnn compare`."""

import torch

from metarnn.cli.main import main
from metarnn.layers import GRU, LSTM, RNN
from metarnn.layers.chrono import chrono
from metarnn.report.curves import curves


def test_units_side_by_side(tmp_path, capsys):
    out = tmp_path / "curves.svg"
    flags = ["--delay", "8", "--steps", "4", "--params", "600", "--seeds", "2", "--out", str(out)]
    assert main(["compare", "--task", "recall", "--cells", "lstm,elman", *flags]) == 0
    printed = capsys.readouterr().out
    for word in ("lstm", "elman", "parameters", "without memory"):
        assert word in printed
    assert "lstm" in out.read_text()


def test_a_unit_or_a_problem_that_is_not_there_is_named(capsys):
    for flags, word in (
        (["--cells", "lsmt"], "lstm"),
        (["--task", "ading"], "adding"),
        (["--out", "/nowhere/x.svg"], "folder that exists"),
    ):
        assert main(["compare", *flags]) == 2
        assert word in capsys.readouterr().err


def test_gates_that_start_open_for_as_long_as_sequences_are():
    lstm, gru = LSTM(2, 500), GRU(2, 500)
    assert chrono(lstm, 100)
    assert chrono(gru, 100)
    assert not chrono(RNN(2, 4), 100)
    biases = lstm.weights(0)
    i, f, _, _ = (biases["bias_ih"] + biases["bias_hh"]).view(4, -1)
    torch.testing.assert_close(i, -f)
    kept = gru.weights(0)["bias_ih"].view(3, -1)[1]
    for gate in (f, kept):
        times = gate.exp()
        assert times.min() >= 1
        assert times.max() <= 99.01
        assert 40 < times.mean() < 60


def test_a_curve_that_is_not_finite_leaves_a_gap():
    drawn = curves({"a": [(1, 1.0), (2, float("nan")), (3, 0.1)]}, "t", ("level", 0.5))
    assert "nan" not in drawn
    assert drawn.count("<polyline") == 1
