import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metarnn.tasks.synthetic import adding


@given(length=st.integers(2, 40), batch=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_exactly_one_step_is_marked_in_each_half_and_the_answer_is_their_sum(length, batch, seed):
    x, y = adding(length, batch, generator=torch.Generator().manual_seed(seed))
    numbers, marks = x.unbind(-1)
    assert x.shape == (length, batch, 2)
    assert y.shape == (batch, 1)
    assert ((numbers >= 0) & (numbers <= 1)).all()
    assert ((marks == 0) | (marks == 1)).all()
    assert (marks[: length // 2].sum(0) == 1).all()
    assert (marks[length // 2 :].sum(0) == 1).all()
    torch.testing.assert_close(y[:, 0], (numbers * marks).sum(0))


def test_every_step_of_its_half_can_be_marked():
    x, _ = adding(7, 500, generator=torch.Generator().manual_seed(0))
    assert (x[..., 1].sum(1) > 0).all()


def test_always_answering_one_costs_a_sixth():
    _, y = adding(10, 200_000, generator=torch.Generator().manual_seed(0))
    assert (y - 1).square().mean().item() == pytest.approx(1 / 6, rel=0.02)


def test_the_same_seed_draws_the_same_batch():
    draws = [adding(10, 3, generator=torch.Generator().manual_seed(5)) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*draws, strict=True))


@pytest.mark.parametrize(
    ("name", "value"), [("length", 1), ("length", 2.5), ("batch", 0), ("batch", -3)]
)
def test_a_bad_argument_is_named_with_its_value(name, value):
    with pytest.raises(ValueError, match=rf"{name}\b.*{value}.*at least"):
        adding(**{"length": 10, "batch": 2, name: value})
