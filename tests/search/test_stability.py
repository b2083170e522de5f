"""Units that are called bounded are: no weights make their state run off."""

import random

import pytest
import torch

from metarnn.layers import Recurrent
from metarnn.search import Genotype, UnitSpace, known
from metarnn.search.stability import is_bounded

RUN_OFF = [
    "h' = relu(lin(x, h))",
    "h' = lin(x, h)",
    "a = tanh(lin(x, h)); h' = sum(h, h)",
    "a = tanh(lin(x, h)); b = sum(a, a); h' = prod(b, h)",
    "a = tanh(lin(x, h)); h' = blend(a, a, h)",
    "a = tanh(lin(x, h)); c' = sum(c, h); h' = sum(c, h)",
    "a = lin(x); h' = prod(a, h)",
]


@pytest.mark.parametrize("text", RUN_OFF)
def test_units_that_may_run_off_are_told(text):
    assert not is_bounded(Genotype.parse(text))


@pytest.mark.parametrize("name", ["lstm", "coupled-lstm", "gru", "gru-before", "elman", "mingru"])
def test_known_gated_units_are_bounded(name):
    assert is_bounded(known.KNOWN[name])


@pytest.mark.medium
def test_the_state_of_a_bounded_unit_grows_no_faster_than_time_whatever_the_weights():
    torch.manual_seed(0)
    space, source = UnitSpace(), random.Random(0)
    checked = 0
    while checked < 30:
        unit = space.genotype(space.draw(source))
        layer = Recurrent(unit.cell(3, 4), engine="eager", dtype=torch.float64)
        with torch.no_grad():
            for weight in layer.parameters():
                weight.copy_(10 * torch.randn_like(weight))
            output, _ = layer(torch.randn(300, 2, 3, dtype=torch.float64))
        early, late = output[:30].abs().max(), output.abs().max()
        assert late <= 1e4 * (1 + early) ** 2, unit
        checked += 1
