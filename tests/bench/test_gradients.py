import math

import pytest
import torch

from metarnn.bench import gradients as bench
from metarnn.gradients import RTRL, SnAp


@pytest.mark.medium
@pytest.mark.parametrize("problem", bench.PROBLEMS)
def test_every_approximation_points_the_way_of_the_exact_gradient(problem):
    found = bench.cosines(problem, width=8, batch=2, seeds=1, updates=1)
    assert found.keys() == bench.APPROXIMATIONS.keys()
    assert all(-0.5 < cosine <= 1 and error >= 0 for cosine, error in found.values())
    assert found["snap-1"][0] > 0.2


@pytest.mark.medium
def test_a_series_is_learned_online():
    wave = torch.sin(torch.arange(300) / 5)
    for rule in (RTRL(), SnAp(1)):
        learned = bench.online(wave, rule, width=6, lr=0.1)
        assert learned < 0.5 * bench.repeating(wave)


def test_without_learning_the_last_value_is_repeated():
    values = torch.randn(20).cumsum(0)
    assert bench.online(values, RTRL(), width=2, lr=0.0) == pytest.approx(bench.repeating(values))


@pytest.mark.slow
def test_a_stream_ten_times_as_long_takes_no_more_memory():
    short, long = bench.memory_over_time((10_000, 100_000)).values()
    assert long < 1.05 * short + 1


@pytest.mark.slow
def test_checkpoints_take_a_tenth_of_the_memory():
    (row,) = bench.checkpoints((16384,))
    assert all(math.isfinite(value) and value >= 0 for value in row.values())
    assert row["MB, checkpoints"] < row["MB"] / 10


def test_time_is_measured():
    for row in bench.elementwise(width=16, steps=64):
        assert row["of the layer"] > 0
        assert row["of the model"] > 0
