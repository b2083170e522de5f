"""Parts of a batch: split, gathered, and gone on with."""

import pytest
import torch

from metarnn.tasks.task import Shard
from metarnn.training.parts import join, part


def test_what_is_carried_is_split_and_joined_along_the_sequences():
    carried = ((torch.randn(2, 6, 3), torch.randn(2, 6, 5)), [torch.randn(1, 6)])
    parts = [part(carried, Shard(k, 3), torch.device("cpu")) for k in range(3)]
    assert parts[1][0][1].equal(carried[0][1][:, 2:4])
    again = join(parts)
    assert again[0][0].equal(carried[0][0])
    assert again[1][0].equal(carried[1][0])
    with pytest.raises(ValueError, match="cannot be shared by 4"):
        part(carried, Shard(0, 4), torch.device("cpu"))
