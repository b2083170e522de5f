"""What is said of recurrent networks in general, by three examples: they are Euler's method, they
come as close to a dynamical system as one likes, they run Turing machines."""

import importlib.util
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.medium
def test_a_network_is_eulers_method_to_the_last_bit_but_rounding():
    euler = example("euler")
    x, v, h = 2.0, 0.0, 0.04
    by_hand = []
    for _ in range(250):
        x, v = x + h * v, v + h * ((1 - x * x) * v - x)
        by_hand.append((x, v))
    np.testing.assert_allclose(euler.orbit(h), by_hand, rtol=1e-12)


@pytest.mark.medium
def test_halving_the_step_halves_the_error(tmp_path):
    found = list(example("euler").main(tmp_path / "euler.svg").values())
    for coarse, fine in pairwise(found):
        assert 1.8 < coarse / fine < 2.2
    assert (tmp_path / "euler.svg").read_text().count("<polyline") == 4


@pytest.mark.medium
def test_the_error_falls_with_the_number_of_units(tmp_path):
    found = list(example("width").main(tmp_path / "width.svg").values())
    assert all(wide < narrow for narrow, wide in pairwise(found))
    assert found[-1] < 0.01
    assert (tmp_path / "width.svg").read_text().count("<polyline") == 5


def test_the_network_has_the_tape_of_the_machine_after_each_of_its_moves():
    turing = example("turing")
    cells, head, state = {}, 0, "A"
    for units in turing.run(107):
        new, move, then = turing.RULES[f"{state}{cells.get(head, 0)}"]
        cells[head], state = int(new), then
        head += 1 if move == "R" else -1
        assert units[state] == 1
        for side, step, first in (("left", -1, head - 1), ("right", 1, head)):
            for k, cell in enumerate(turing.tape(units, side)):
                assert cell == cells.get(first + step * k, 0)
        ones = sum(turing.tape(units, "left")) + sum(turing.tape(units, "right"))
        assert ones == sum(cells.values())
    assert state == "H"
    assert sum(cells.values()) == 13


def test_the_picture_of_the_tape(tmp_path):
    assert example("turing").main(tmp_path / "turing.svg") == (107, 13)
    assert (tmp_path / "turing.svg").read_text().startswith("<svg")
