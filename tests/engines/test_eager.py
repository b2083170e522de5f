import pytest
import torch

from tests.helpers.cases import EVERY, make, randn, random_state
from tests.helpers.compare import assert_close, assert_same, inputs, measure


@pytest.mark.parametrize("every", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("name", EVERY)
def test_checkpoints_change_no_value_and_no_gradient(name, every):
    results = []
    for options in ({}, {"checkpoint_every": every}):
        layer = make(EVERY[name], 2, bidirectional=True, zoneout=0.3, engine="eager", **options)
        x, *state = inputs(randn(5, 2, 3), *random_state(layer, 2))
        torch.manual_seed(0)
        wrt = [x, *state, *layer.parameters()]
        results.append(measure(lambda: layer(x, tuple(state), lengths=[5, 3]), wrt))  # noqa: B023
    assert_close(*results)


def test_second_derivatives_go_through_checkpoints():
    results = []
    for every in (0, 2):
        layer = make(EVERY["lstm"], engine="eager", checkpoint_every=every)
        weights = list(layer.parameters())
        loss = layer(randn(5, 2, 3))[0].square().sum()
        first = torch.autograd.grad(loss, weights, create_graph=True)
        results.append(torch.autograd.grad([g.square().sum() for g in first], weights))
    assert_close(*results)


def kept_bytes(layer, x) -> int:
    """What autograd holds between forward and backward, each storage counted once."""
    storages = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = (storage.nbytes(), tensor)  # held, so no address returns
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output, _ = layer(x)
    del output
    return sum(size for size, _ in storages.values())


@pytest.mark.parametrize("name", ["lstm", "gru", "onlstm"])
def test_checkpoints_keep_less_and_fewer_of_them_keep_less_still(name):
    x = randn(64, 8, 3)
    kept = [
        kept_bytes(make(EVERY[name], engine="eager", checkpoint_every=every), x)
        for every in (0, 1, 8)
    ]
    assert kept[2] <= kept[1] < kept[0] / 2


def test_without_gradients_there_is_nothing_to_checkpoint():
    layer, x = make(EVERY["gru"], checkpoint_every=2), randn(5, 2, 3)
    with torch.no_grad():
        assert_same(layer(x), make(EVERY["gru"], engine="eager")(x))
