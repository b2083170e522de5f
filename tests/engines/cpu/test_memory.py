"""Room for results, of large pages if it is large."""

import sys

import pytest
import torch

from metarnn.engines.cpu import memory

CPU = torch.device("cpu")


@pytest.mark.parametrize("numbers", [0, 3, memory.LARGE // 4 + 5])
def test_all_of_it_can_be_written_and_read(numbers):
    made = memory.spacious((numbers, 1), dtype=torch.float32, device=CPU).fill_(2)
    assert made.shape == (numbers, 1)
    assert made.dtype == torch.float32
    assert float(made.sum()) == 2 * numbers


def test_where_a_system_knows_no_large_pages_there_are_small_ones(monkeypatch):
    monkeypatch.setattr(sys, "platform", "other")
    memory._madvise.cache_clear()
    assert memory._madvise() is None
    assert memory.spacious((memory.LARGE,), dtype=torch.float32, device=CPU).numel() == memory.LARGE
    memory._madvise.cache_clear()


def test_only_where_much_is_needed_are_pages_large():
    assert memory.maker((memory.LARGE // 4 - 1,), torch.float32)[0] is torch.empty
    assert memory.maker((memory.LARGE // 4,), torch.float32)[0] is memory.spacious
    assert memory.maker((memory.LARGE // 8,), torch.float64)[0] is memory.spacious
