import importlib.util
import math
import re
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "adding.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("adding_example", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.medium
def test_a_short_race_ends_with_a_finite_error_for_every_cell(example, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    example.main(example.Settings(seconds=1, length=10, params=500))
    printed = capsys.readouterr().out
    table = printed[printed.index("test MSE") :].splitlines()
    for name in example.CELLS:
        (row,) = [line for line in table if re.match(rf"{name} +\d", line)]
        error = float(re.findall(r"\d\.\d{4}", row)[0])
        assert math.isfinite(error)
    assert "…" not in printed  # nothing is cut off in a terminal of 80 columns
    assert f"of {len(example.CELLS)} cells solved the task" in printed


@pytest.mark.medium
def test_every_cell_trains_for_as_many_steps(example):
    settings = example.Settings(seconds=0.1, length=10, params=500)
    racers = [example.Racer(name, settings) for name in example.CELLS]
    assert list(example.race(racers, settings))[-1] >= 1
    assert len({racer.steps for racer in racers}) == 1


@pytest.mark.parametrize("params", [500, 3000])
def test_the_hidden_size_is_the_largest_within_the_parameters(example, params):
    for unit in example.CELLS.values():
        hidden = example.hidden_size(unit, params)
        assert example.Network(unit(hidden)).size <= params < example.Network(unit(hidden + 1)).size


def test_a_sparkline_falls_from_the_baseline_to_well_below_solved(example):
    assert example.sparkline([1.0, 1 / 6, 0.013, 0.001, 1e-9]) == "██▅▁▁"
    assert len(example.sparkline([0.1] * 1000)) <= 16
    assert example.sparkline([]) == ""
