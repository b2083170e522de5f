"""Checkpoints over time: the same results from less memory, on every engine."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import metarnn
from metarnn import Recurrent, cells
from metarnn.hyper import Mogrifier
from tests.helpers.cases import EVERY, RUNNABLE, make, randn, random_state
from tests.helpers.compare import assert_close, assert_same, inputs, measure

CASES = [(name, engine) for name, engine in RUNNABLE if engine != "native"]


@pytest.mark.medium
@pytest.mark.parametrize("every", [1, 3, 100])
@pytest.mark.parametrize(("name", "engine"), CASES)
def test_checkpoints_change_no_value_and_no_gradient(name, engine, every):
    results = []
    for options in ({}, {"checkpoint_every": every}):
        layer = make(EVERY[name], 2, bidirectional=True, zoneout=0.3, engine=engine, **options)
        x, *state = inputs(randn(5, 2, 3), *random_state(layer, 2))
        torch.manual_seed(0)
        wrt = [x, *state, *layer.parameters()]
        results.append(measure(lambda: layer(x, tuple(state), lengths=[5, 3]), wrt))  # noqa: B023
    assert_close(*results)


@pytest.mark.parametrize("engine", ["cpu", "eager"])
def test_second_derivatives_go_through_checkpoints(engine):
    results = []
    for every in (0, 2):
        layer = make(EVERY["lstm"], engine=engine, checkpoint_every=every)
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


@pytest.mark.parametrize("engine", ["cpu", "eager"])
@pytest.mark.parametrize("name", ["lstm", "gru", "onlstm"])
def test_checkpoints_keep_less_and_fewer_of_them_keep_less_still(name, engine):
    x = randn(64, 8, 3)
    kept = [
        kept_bytes(make(EVERY[name], engine=engine, checkpoint_every=every), x)
        for every in (0, 1, 8)
    ]
    assert kept[2] <= kept[1] < kept[0] / 2


def test_without_gradients_there_is_nothing_to_checkpoint():
    layer, x = make(EVERY["gru"], engine="eager", checkpoint_every=2), randn(5, 2, 3)
    with torch.no_grad():
        assert_same(layer(x), make(EVERY["gru"], engine="eager")(x))


@pytest.mark.parametrize("engine", ["cpu", "eager"])
def test_a_loss_of_part_of_the_outputs_and_a_gradient_of_part_of_the_inputs(engine):
    results = {0: [], 2: []}
    for every, found in results.items():
        layer = make(EVERY["lstm"], engine=engine, checkpoint_every=every)
        x, h, c = randn(7, 2, 3), *inputs(*random_state(layer, 2))
        layer.weight_ih_l0.requires_grad_(False)
        output, (last, _) = layer(x, (h, c))
        wrt = [h, c, layer.weight_hh_l0, layer.bias_ih_l0]
        for loss in (output[:3].square().sum(), last.sum()):
            found.append(torch.autograd.grad(loss, wrt, retain_graph=True))
    assert_close(results[0], results[2])


@pytest.mark.parametrize("context", ["step", "sequence"])
@pytest.mark.parametrize("engine", ["cpu", "eager"])
def test_what_a_cell_is_given_has_its_gradient_too(engine, context):
    results = []
    for every in (0, 2):
        torch.manual_seed(0)
        layer = metarnn.MetaRecurrent(
            EVERY["lstm"], context=context, engine=engine, checkpoint_every=every
        ).double()
        for weight in layer.sources.parameters():
            torch.nn.init.normal_(weight, std=0.5)
        (x,) = inputs(randn(5, 2, 3))
        results.append(measure(lambda layer=layer, x=x: layer(x), [x, *layer.parameters()]))
    assert_close(*results)


@pytest.mark.parametrize("cell", [cells.LSTM(3, 4), Mogrifier(cells.LSTM(3, 4), rounds=2, rank=2)])
def test_torchs_own_checkpoints_too(cell):
    layer, x = Recurrent(cell), torch.randn(3, 2, 3, requires_grad=True)
    for _ in range(2):  # a call like one before takes another way
        (expected,) = torch.autograd.grad(layer(x)[0].sum(), x)
        again = checkpoint(lambda t: layer(t)[0], x, use_reentrant=False)
        (found,) = torch.autograd.grad(again.sum(), x)
        assert torch.equal(found, expected)
