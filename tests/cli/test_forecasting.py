"""`metarnn train forecasting`, `evaluate` and `forecast`."""

import csv

import numpy as np
import pytest

from metarnn.cli.main import main

SMALL = ("--width", "6", "--batch", "4", "--steps", "4", "--validate-every", "2")


@pytest.fixture
def data(tmp_path):
    days = np.arange("2020-01-01", "2020-07-01", dtype="datetime64[D]")
    wave = np.sin(2 * np.pi * np.arange(len(days)) / 7)
    rows = [
        f"{d},{v:.3f},{2 * v:.3f}" for d, v in zip(days, wave, strict=True) if str(d)[-1] != "9"
    ]
    path = tmp_path / "waves.csv"
    path.write_text("\n".join(["date,a,b", *rows]))
    return path


def test_from_a_file_to_forecasts(data, tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "next.csv"
    flags = ["--data", str(data), "--horizon", "5", "--out", str(run), "--device", "cpu", *SMALL]
    assert main(["train", "forecasting", *flags]) == 0
    printed = capsys.readouterr()
    for word in ("this model", "naive", "seasonal naive (7)", "linear", "mase"):
        assert word in printed.out
    assert "step: day" in printed.err
    assert "steps are missing" in printed.err
    assert main(["evaluate", str(run)]) == 0
    assert "coverage" in capsys.readouterr().out
    assert main(["forecast", str(run), "--out", str(out)]) == 0
    rows = list(csv.DictReader(out.open()))
    assert [row["series"] for row in rows] == ["a"] * 5 + ["b"] * 5
    assert [row["date"] for row in rows[:2]] == ["2020-07-01", "2020-07-02"]
    assert all(float(row["q10"]) < float(row["q90"]) for row in rows)


def test_a_bidirectional_recursive_forecaster_is_refused(capsys):
    flags = ["--strategy", "recursive", "--bidirectional", "--likelihood", "mse"]
    assert main(["train", "forecasting", *flags]) == 2
    assert "still to be told" in capsys.readouterr().err


@pytest.mark.slow
def test_the_default_settings_tell_sunspots_better_than_every_baseline(tmp_path, capsys):
    assert main(["train", "forecasting", "--device", "cpu", "--out", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(k for k, line in enumerate(lines) if line.strip().startswith("this model"))
    ours, *others = [[float(v) for v in line.split()[-4:]] for line in lines[first : first + 4]]
    for row in others:
        assert all(own < other for own, other in zip(ours, row, strict=True))
