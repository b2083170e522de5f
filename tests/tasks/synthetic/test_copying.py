import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from metarnn.tasks.synthetic import copying


@given(
    delay=st.integers(1, 20),
    batch=st.integers(1, 4),
    symbols=st.integers(2, 9),
    items=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
def test_the_message_comes_back_right_after_the_recall(delay, batch, symbols, items, seed):
    generator = torch.Generator().manual_seed(seed)
    x, y = copying(delay, batch, symbols=symbols, items=items, generator=generator)
    steps = delay + 2 * items
    assert x.shape == y.shape == (steps, batch)
    assert x.dtype == y.dtype == torch.int64

    message = x[:items]
    assert ((message >= 1) & (message <= symbols)).all()
    assert torch.equal(y[-items:], message)
    assert (y[:-items] == 0).all()

    recall = steps - items - 1
    assert (x[recall] == symbols + 1).all()
    assert (x[items:recall] == 0).all()
    assert (x[recall + 1 :] == 0).all()


def test_every_symbol_is_drawn_about_equally_often():
    x, _ = copying(1, 10_000, symbols=4, items=5, generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(x[:5].flatten(), minlength=6)[1:5]
    assert counts.tolist() == pytest.approx([12_500] * 4, rel=0.05)


def test_the_memoryless_baseline_is_what_the_docstring_says():
    delay, symbols, items = 30, 8, 10
    _, y = copying(delay, 50, symbols=symbols, items=items)
    logits = torch.full((len(y), symbols + 1), -torch.inf)
    logits[:-items, 0] = 0
    logits[-items:, 1:] = 0
    loss = cross_entropy(logits[:, None].expand(-1, 50, -1).flatten(0, 1), y.flatten())
    assert loss.item() == pytest.approx(items * math.log(symbols) / len(y))


def test_the_same_seed_draws_the_same_batch():
    draws = [copying(9, 3, generator=torch.Generator().manual_seed(5)) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*draws, strict=True))


@pytest.mark.parametrize(
    ("name", "value"), [("delay", 0), ("batch", 0), ("symbols", 1), ("items", 0), ("items", 1.5)]
)
def test_a_bad_argument_is_named_with_its_value(name, value):
    with pytest.raises(ValueError, match=rf"{name}\b.*{value}.*at least"):
        copying(**{"delay": 10, "batch": 2, name: value})
