"""Schedules follow their formulas."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metarnn.training.schedule import SHAPES, factor

shapes = st.sampled_from(sorted(SHAPES))
lengths = st.integers(2, 300)


@given(shapes, lengths, st.data())
def test_the_warm_up_is_a_straight_line_from_zero(shape, warmup, data):
    step = data.draw(st.integers(1, warmup))
    assert factor(shape, step, 0.3, warmup=warmup, floor=0.1) == step / warmup


@given(lengths, st.integers(0, 50), st.floats(0, 0.9), st.data())
def test_after_the_warm_up_the_closed_forms_hold(length, warmup, floor, data):
    steps = warmup + length
    step = data.draw(st.integers(warmup + 1, steps))
    done = (step - 1 - warmup) / (steps - warmup)
    found = {s: factor(s, step, (step - 1) / steps, warmup=warmup, floor=floor) for s in SHAPES}
    assert found["constant"] == 1
    assert found["linear"] == pytest.approx(floor + (1 - floor) * (1 - done))
    cosine = floor + (1 - floor) * (1 + math.cos(math.pi * done)) / 2
    assert found["cosine"] == pytest.approx(cosine)
    assert found["inverse-sqrt"] == pytest.approx(math.sqrt(max(warmup, 1) / step))


@given(shapes, st.integers(0, 40), st.integers(41, 100))
def test_no_schedule_rises_after_the_warm_up(shape, warmup, steps):
    values = [factor(shape, k, (k - 1) / steps, warmup=warmup) for k in range(warmup + 1, steps)]
    assert all(later <= earlier for earlier, later in pairwise(values))
    assert all(0 <= value <= 1 for value in values)
