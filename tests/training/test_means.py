import torch

from metarnn.training.means import Means
from metarnn.training.world import World


def filled():
    means = Means()
    means.add({"loss": torch.tensor(2.0), "nll": 1.0}, 30)
    means.count(30)
    means.add({"loss": torch.tensor(4.0), "nll": 3.0}, 10)
    means.count(10)
    return means


def test_means_are_weighted_by_tokens_and_begin_anew_once_taken():
    means = filled()
    assert means.take(World()) == {"loss": 2.5, "nll": 1.5}
    means.add({"loss": 7.0}, 5)
    means.count(5)
    assert means.take(World()) == {"loss": 7.0}


def test_what_was_added_before_a_checkpoint_counts_once_whoever_loads_it():
    state = filled().state_dict(World())
    loaded = [Means(), Means()]
    for rank, means in enumerate(loaded):
        means.load_state_dict(state, World(rank, 1))
    sums = [means.state_dict(World()) for means in loaded]
    assert {name: sums[0][name] + sums[1][name] for name in state} == state
