"""The short way of a call like one before, with kernels of this engine."""

import pytest
import torch

from metarnn import Recurrent, cells
from metarnn.hyper import MetaRecurrent
from metarnn.hyper.generators import Dense
from metarnn.hyper.watch import watch
from tests.helpers.cases import randn
from tests.helpers.compare import assert_close, assert_same, leaves

SHAPE = (5, 2, 3)


def made(cell, device):
    torch.manual_seed(0)
    return Recurrent(cell, engine="triton", device=device)


def called(layer, x):
    """Outputs, final states and gradients."""
    x = x.clone().requires_grad_()
    found = leaves(layer(x))
    total = torch.stack([(value**2).sum() for value in found]).sum()
    return [*found, *torch.autograd.grad(total, [x, *layer.parameters()])]


def kept(layer):
    return [each for each in layer._calls.values() if each is not None]


@pytest.mark.parametrize("make", [cells.LSTM, cells.GRU, cells.MinGRU])
def test_the_second_call_finds_what_the_first_did_bit_by_bit(make, device):
    layer, x = made(make(3, 4), device), randn(*SHAPE, dtype=torch.float32).to(device)
    first = called(layer, x)
    assert kept(layer)
    assert_same(called(layer, x), first)
    with torch.no_grad():
        plain = layer(x)[0]
        assert torch.equal(layer(x)[0], plain)


def test_new_weights_count_at_once(device):
    layer, x = made(cells.LSTM(3, 4), device), randn(*SHAPE, dtype=torch.float32).to(device)
    called(layer, x)
    other = made(cells.LSTM(3, 4), device)
    with torch.no_grad():
        for each in (layer, other):
            each.get_parameter("weight_hh_l0").mul_(2)
    assert_same(called(layer, x), called(other, x))


def test_what_is_hoisted_is_differentiated_twice(device):
    layer = made(cells.Elman(2, 2), device)
    eager = Recurrent(cells.Elman(2, 2), engine="eager", device=device)
    eager.load_state_dict(layer.state_dict())
    x = randn(3, 1, 2, dtype=torch.float32).to(device).requires_grad_()

    def twice(which):
        which(x)  # so that the next call is like one before
        (grad,) = torch.autograd.grad(which(x)[0].sum(), x, create_graph=True)
        return torch.autograd.grad((grad**2).sum(), [x, *which.parameters()])

    found = twice(layer)
    assert kept(layer)
    torch.testing.assert_close(found, twice(eager))


def test_from_whatever_state_a_layer_has_returned(device, monkeypatch):
    layer, x = made(cells.LSTM(3, 4), device), randn(*SHAPE, dtype=torch.float32).to(device)
    state = tuple(randn(1, 2, 4, seed=k, dtype=torch.float32).to(device) for k in range(2))
    expected = leaves(layer(x, state))
    monkeypatch.setattr(layer, "_forward", None)  # the long way
    assert_same(leaves(layer(x, state)), expected)
    assert not torch.equal(layer(x)[0], expected[0])


def test_under_autocast_too(device, monkeypatch):
    layer, x = made(cells.LSTM(3, 4), device), randn(*SHAPE, dtype=torch.float32).to(device)
    exact = called(layer, x)
    with torch.autocast(device, torch.bfloat16):
        first = called(layer, x)
        monkeypatch.setattr(layer, "_forward", None)
        assert_same(called(layer, x), first)
    assert {value.dtype for value in first} == {torch.float32}
    assert not torch.equal(first[0], exact[0])
    assert_close(first, exact, 2e-2)
    assert_same(called(layer, x), exact)


def test_a_state_that_was_returned_may_be_changed_in_place(device):
    layer, x = made(cells.LSTM(3, 4), device), randn(*SHAPE, dtype=torch.float32).to(device)
    for _ in range(2):
        y, (h, c) = layer(x)
        h[:, 0] = 0
        c.mul_(0.5)
        (y.sum() + h.sum() + c.sum()).backward()


def test_what_hooks_have_turned_in_memory_is_read_as_it_is(device):
    layer, x = made(cells.LSTM(3, 4), device), randn(*SHAPE, dtype=torch.float32).to(device)
    expected = called(layer, x)

    def turned(tensor):
        return tensor if tensor.dim() < 2 else tensor.mT.contiguous().mT

    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, turned):
            assert_close(called(layer, x), expected, 1e-6)


def test_nothing_is_saved_twice(device):
    layer, x = made(cells.LSTM(3, 4), device), randn(*SHAPE, dtype=torch.float32).to(device)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        layer(x, tuple(torch.zeros(1, 2, 4, device=device) for _ in range(2)))
    places = [(t.data_ptr(), t.shape) for t in packed]
    assert len(places) == len(set(places))


def written(device, **options):
    """A layer whose weights are written, anything but its plain unit."""
    torch.manual_seed(0)
    layer = MetaRecurrent(cells.LSTM(3, 4), engine="triton", device=device, **options)
    with torch.no_grad():
        for weight in layer.parameters():
            weight += 0.3 * randn(*weight.shape, dtype=torch.float32).to(device)
    return layer


WRITTEN = {
    "a step": {"form": "lowrank", "encoder": "gru"},
    "a step, delayed": {"form": "scale", "encoder": "gru", "delay": True},
    "a sequence": {"form": "lowrank", "context": "sequence"},
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_weights_are_found_again_bit_by_bit(name, device, monkeypatch):
    layer = written(device, **WRITTEN[name])
    x = randn(*SHAPE, dtype=torch.float32).to(device)
    state = tuple(randn(1, 2, n, seed=n, dtype=torch.float32).to(device) for n in layer.state_sizes)
    first, later = called(layer, x), leaves(layer(x, state))
    assert kept(layer)
    monkeypatch.setattr(layer, "_forward", None)  # the long way
    assert_same(called(layer, x), first)
    assert_same(leaves(layer(x, state)), later)


def test_states_of_written_weights_may_be_detached_in_place(device):
    layer, x = written(device, **WRITTEN["a step"]), randn(*SHAPE, dtype=torch.float32).to(device)
    for _ in range(2):
        _, state = layer(x)
        assert all(part.detach_().is_leaf for part in state)


def test_where_numbers_come_in_another_shape_the_long_way_is_gone(device, monkeypatch):
    layer, x = written(device, **WRITTEN["a step"]), randn(*SHAPE, dtype=torch.float32).to(device)
    layer(x)
    assert kept(layer)
    write = Dense.forward

    def once(self, context):
        return {name: row[-1] for name, row in write(self, context).items()}

    monkeypatch.setattr(Dense, "forward", once)
    with watch() as records:
        layer(x)
    assert len(records) == 1  # its source was asked once
    eager = written(device, **WRITTEN["a step"])
    eager.engine = "eager"
    assert_close(layer(x)[0], eager(x)[0], 1e-5)


def test_weights_whose_memory_holds_what_they_are_not_are_read_as_what_they_are(device):
    layer, x = made(cells.LSTM(3, 4), device), randn(*SHAPE, dtype=torch.float32).to(device)
    expected = layer(x)[0]
    weight = -layer.get_parameter("weight_hh_l0").detach()
    weight = torch.ops.aten._neg_view(weight)
    found, _ = torch.func.functional_call(layer, {"weight_hh_l0": weight}, (x,))
    assert torch.equal(found, expected)
