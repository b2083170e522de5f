import pytest
import torch
from torch import nn

from metarnn import LSTM, RNN, MetaRecurrent, cells
from metarnn.gradients import BPTT, RTRL, TBPTT
from tests.gradients.models import Regression, close, data, exact, regression, through
from tests.helpers.cases import EVERY


def test_gradients_are_those_of_autograd():
    model, chunk = regression(EVERY["lstm"]), data()
    model(chunk, None)[0].backward()
    found = BPTT().step(model, chunk).named
    close(found, {n: w.grad for n, w in model.named_parameters() if w.grad is not None})


@pytest.mark.parametrize("every", [-1, 1, 4, 100])
@pytest.mark.parametrize("name", ["elman", "lstm", "qrnn-2"])
def test_checkpoints_change_no_gradient(name, every):
    model, chunk = regression(EVERY[name], 2), data()
    frugal = BPTT(every).step(model, chunk)
    plain = BPTT().step(model, chunk)
    close(frugal.named, plain.named)
    torch.testing.assert_close(frugal.value, plain.value)
    torch.testing.assert_close(frugal.carried, plain.carried)


def test_checkpoints_drop_again_what_was_dropped():
    layer = LSTM(3, 4, zoneout=0.5, dtype=torch.float64)
    model, chunk = Regression(layer, 4, nn.Dropout(0.5)), data()
    torch.manual_seed(1)
    first = BPTT(3).step(model, chunk)
    after = torch.rand(1)
    torch.manual_seed(1)
    second = TBPTT(3, 9).step(model, chunk)  # the same stretches, none of them run again
    close(first.named, second.named)
    assert torch.rand(1) == after


def test_a_chunk_starts_from_what_was_carried_and_sends_nothing_back():
    model, (x, y) = regression(EVERY["gru"]), data()
    first = BPTT().step(model, (x[:4], y[:4]))
    second = BPTT().step(model, (x[4:], y[4:]), first.carried)
    whole = BPTT().step(model, (x, y))
    torch.testing.assert_close(first.value + second.value, whole.value)
    torch.testing.assert_close(second.carried, whole.carried)
    close(through(BPTT(), model, (x, y), (4,)), TBPTT(4, 4).step(model, (x[:4], y[:4])).named
          | {n: g + second.named[n] for n, g in first.named.items()})  # fmt: skip


def test_each_parameter_gets_a_gradient_of_its_own():
    model = Regression(RNN(3, 4, dtype=torch.float64), 4)
    weights = dict(model.named_parameters())
    one, other = weights["layer.bias_ih_l0"], weights["layer.bias_hh_l0"]
    BPTT().step(model, data()).put(model)
    assert one.grad is not None
    assert other.grad is not None
    before = other.grad.clone()
    one.grad.zero_()  # autograd computes both as one tensor
    assert torch.equal(other.grad, before)
    BPTT().step(model, data()).put(model)
    torch.testing.assert_close(other.grad, 2 * before)


def test_a_model_of_two_directions_is_refused_where_time_is_cut():
    layer = LSTM(3, 4, bidirectional=True, dtype=torch.float64)
    model = Regression(layer, 8)
    exact(model, data())
    for rule in (BPTT(3), TBPTT(2, 4)):
        with pytest.raises(ValueError, match="one direction"):
            rule.step(model, data())


def test_layers_that_read_whole_sequences_are_refused_where_time_is_cut():
    layer = MetaRecurrent(cells.GRU(3, 4), context="sequence", dtype=torch.float64)
    model = Regression(layer, 4)
    exact(model, data())
    for rule in (BPTT(3), TBPTT(2, 4), RTRL()):
        with pytest.raises(ValueError, match="reads whole sequences"):
            rule.step(model, data())


@pytest.mark.parametrize("kind", [LSTM, nn.LSTM])
def test_a_batch_that_comes_first_is_not_taken_for_time(kind):
    model = Regression(kind(3, 4, batch_first=True, dtype=torch.float64), 4)
    chunk = tuple(t.transpose(0, 1) for t in data())
    true = exact(model, chunk)
    with pytest.raises(ValueError, match="time first"):
        RTRL().step(model, chunk)

    def split(chunk, steps):
        return list(zip(*(t.split(steps, 1) for t in chunk), strict=True))

    close(RTRL(split=split).step(model, chunk).named, true)
    close(BPTT(-1, split=split).step(model, chunk).named, true)


def test_a_loss_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="one number"):
        BPTT(loss=lambda model, x, state: (model.readout.weight, None)).step(
            regression(EVERY["elman"]), data()
        )
