import re

import pytest
import torch

from metarnn.tasks.synthetic import counting


def drawn(length=60, batch=5, **options):
    source = torch.Generator().manual_seed(0)
    return counting(length, batch, generator=source, **options)


def test_streams_are_words_of_as_many_as_bs():
    _, y = drawn(200)
    for stream in y.T:
        text = "".join("ab$"[k] for k in stream)
        *words, rest = text.split("$")
        for word in words:
            found = re.fullmatch("(a+)(b+)", word)
            assert found
            assert len(found[1]) == len(found[2]) <= 10
        assert re.fullmatch("a*b*", rest)


def test_inputs_are_the_symbols_before():
    x, y = drawn()
    assert (x[0] == 2).all()
    assert torch.equal(x[1:], y[:-1])


def test_every_count_is_drawn_as_often():
    _, y = drawn(4000, 20, most=4)
    texts = ["".join("ab$"[k] for k in stream) for stream in y.T]
    counts = torch.tensor([word.count("a") for text in texts for word in text.split("$")[:-1]])
    for n in range(1, 5):
        assert (counts == n).double().mean().item() == pytest.approx(0.25, abs=0.02)
