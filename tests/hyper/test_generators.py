"""Generators: rows of numbers by name, of any size, that start where they should."""

import pytest
import torch

from metarnn.hyper import Number
from metarnn.hyper.generators import GENERATORS, Dense, fourier

NUMBERS = {"a": Number((5, 7), 0.1), "b": Number((130,), 2.0), "c": Number((1,), 1.0)}


@pytest.mark.parametrize("name", GENERATORS)
def test_rows_have_their_names_and_widths_whatever_leads(name):
    generator = GENERATORS[name](6, NUMBERS)
    for lead in ((3,), (4, 3), (2, 1, 3)):
        rows = generator(torch.randn(*lead, 6))
        assert {n: tuple(row.shape) for n, row in rows.items()} == {
            n: (*lead, number.width) for n, number in NUMBERS.items()
        }


@pytest.mark.parametrize("name", GENERATORS)
def test_only_the_last_head_starts_at_zero_and_with_it_every_number(name):
    torch.manual_seed(0)
    generator = GENERATORS[name](6, NUMBERS)
    rows = generator(torch.randn(4, 3, 6))
    assert all((row == 0).all() for row in rows.values())
    zero = {n for n, p in generator.named_parameters() if (p == 0).all()}
    assert all("head" in n or "bias" in n for n in zero)
    assert any("head" in n for n in zero)


@pytest.mark.parametrize("name", GENERATORS)
def test_numbers_start_with_the_deviation_each_of_them_asks_for(name):
    torch.manual_seed(0)
    wide = {n: Number((400,), number.std) for n, number in NUMBERS.items()}
    rows = GENERATORS[name](32, wide, "hyperfan")(torch.randn(200, 32))
    for n, row in rows.items():
        assert 0.6 < row.std() / NUMBERS[n].std < 1.5, n


def test_a_hidden_layer_keeps_that_deviation():
    torch.manual_seed(0)
    row = Dense(32, {"a": Number((400,), 0.3)}, "hyperfan", hidden=64)(torch.randn(200, 32))["a"]
    assert 0.8 < row.std() / 0.3 < 1.2


@pytest.mark.parametrize("name", ["conv", "attention", "recurrent"])
def test_the_same_chunked_generator_serves_units_of_any_size(name):
    small = GENERATORS[name](6, {"a": Number((10,), 1.0), "b": Number((70,), 1.0)})
    large = GENERATORS[name](6, {"a": Number((1000,), 1.0), "b": Number((300,), 1.0)})
    large.load_state_dict(small.state_dict())
    assert large(torch.randn(2, 6))["a"].shape == (2, 1000)


@pytest.mark.parametrize("name", GENERATORS)
def test_each_context_is_read_apart(name):
    generator = GENERATORS[name](6, NUMBERS, "hyperfan").double()
    c = torch.randn(4, 6, dtype=torch.float64)
    together = generator(c)["b"]
    for k in range(4):
        torch.testing.assert_close(together[k], generator(c[k : k + 1])["b"][0])


def test_fourier_features_tell_steps_apart_and_repeat_after_the_longest_period():
    features = fourier(torch.arange(9.0), 3, 8.0)
    assert features.shape == (9, 6)
    torch.testing.assert_close(features[8], features[0], atol=1e-5, rtol=0)
    assert torch.pdist(features[:8]).min() > 0.1
