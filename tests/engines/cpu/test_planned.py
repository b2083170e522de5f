"""A planned call computes what the general one does, whatever it is called with."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from metarnn import LSTM, Recurrent, cells
from metarnn.engines import autograd
from metarnn.engines import zeros as made
from tests.helpers.compare import assert_same


def called(layer, x):
    """Output, final state and gradients of a call."""
    x = x.clone().requires_grad_()
    y, state = layer(x)
    parts = state if isinstance(state, tuple) else (state,)
    total = (y * torch.arange(y.numel()).view_as(y).cos()).sum() + sum(p.sin().sum() for p in parts)
    return [y, *parts, *torch.autograd.grad(total, [x, *layer.parameters()])]


def twice(layer, x):
    """The output of a call like one before."""
    layer(x)
    return layer(x)[0]


def kept(layer):
    return [each for each in layer._calls.values() if each is not None]


@pytest.mark.parametrize("make", [cells.Elman, cells.LSTM, cells.GRU, cells.MinGRU, cells.SRU])
def test_the_second_call_finds_what_the_first_did_bit_by_bit(make):
    layer, x = Recurrent(make(3, 4)), torch.randn(5, 2, 3)
    first = called(layer, x)
    assert kept(layer)
    assert_same(called(layer, x), first)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_numbers_are_computed_in_wider_ones_each_time(dtype):
    layer, x = Recurrent(cells.Elman(3, 4)).to(dtype), torch.randn(5, 2, 3, dtype=dtype)
    expected = layer(x)[0]
    assert torch.equal(layer(x)[0], expected)
    assert not kept(layer)


def test_it_is_the_state_before_and_not_one_that_somebody_wrote_to():
    layer, x = Recurrent(cells.Elman(3, 4)), torch.randn(5, 2, 3)
    expected = layer(x)[0]
    for _ in range(2):
        y, state = layer(x)
        assert torch.equal(y, expected)
        with torch.no_grad():
            y.fill_(7)
            state.fill_(7)


def states(layer, batch):
    return tuple(torch.randn(1, batch, n, requires_grad=True) for n in layer.cell.states)


def continued(layer, x, state):
    """Output, final state and gradients of a call that goes on from a state."""
    given = state[0] if len(state) == 1 else state
    y, final = layer(x, given)
    parts = final if isinstance(final, tuple) else (final,)
    total = torch.stack([(part * part).sum() for part in (y, *parts)]).sum()
    return [y, *parts, *torch.autograd.grad(total, [*state, *layer.parameters()])]


@pytest.mark.parametrize("make", [cells.Elman, cells.LSTM])
def test_from_whatever_state_a_layer_has_returned(make, monkeypatch):
    layer, x = Recurrent(make(3, 4)), torch.randn(5, 2, 3)
    state = states(layer, 2)
    expected = continued(layer, x, state)
    monkeypatch.setattr(layer, "_forward", None)  # the long way
    assert_same(continued(layer, x, state), expected)
    assert not torch.equal(layer(x)[0], expected[0])


def test_a_state_that_no_layer_returns_takes_the_long_way():
    layer, x = LSTM(3, 4), torch.randn(5, 2, 3)
    h, c = (torch.randn(1, 2, 4) for _ in range(2))
    expected = layer(x, (h, c))[0]
    turned = h.transpose(1, 2).contiguous().transpose(1, 2)
    learned = nn.Parameter(h)
    for other in ([h, c], (h[0], c[0]), (turned, c), (learned, c), (torch.conj(-1j * h).imag, c)):
        assert torch.equal(layer(x, other)[0], expected)
    learned.grad = None
    layer(x, (learned, c))[0].sum().backward()
    assert learned.grad is not None


@pytest.mark.parametrize("wrong", [torch.zeros(1, 3, 4), torch.zeros(1, 2, 4).double(), "h"])
def test_a_state_of_another_shape_or_type_is_refused_as_ever(wrong):
    layer, x = LSTM(3, 4), torch.randn(5, 2, 3)
    twice(layer, x)
    with pytest.raises((TypeError, ValueError), match="state"):
        layer(x, (wrong, torch.zeros(1, 2, 4)))
    with pytest.raises(ValueError, match="state"):
        layer(x, torch.zeros(1, 2, 4))


def test_new_weights_count_at_once():
    layer, x = LSTM(3, 4), torch.randn(5, 2, 3)
    twice(layer, x)
    with torch.no_grad():
        layer.get_parameter("weight_hh_l0").mul_(2)
    other = LSTM(3, 4)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x)[0], other(x)[0])
    layer.weight_hh_l0 = nn.Parameter(torch.zeros(16, 4))
    nn.init.zeros_(other.get_parameter("weight_hh_l0"))
    assert torch.equal(layer(x)[0], other(x)[0])


def test_weights_of_another_shape_or_type_are_refused_as_ever():
    layer, x = Recurrent(cells.Elman(3, 4), engine="cpu"), torch.randn(5, 2, 3)
    twice(layer, x)
    layer.get_parameter("weight_hh_l0").data = torch.zeros(4, 3)
    with pytest.raises(ValueError, match="weight_hh"):
        layer(x)
    layer.double()
    with pytest.raises(ValueError, match=r"x\.dtype"):
        layer(x)


def test_weights_that_lie_elsewhere_are_read_where_they_lie():
    layer, x = Recurrent(cells.Elman(3, 4)), torch.randn(5, 2, 3)
    expected = called(layer, x)[0]
    weight = layer.get_parameter("weight_hh_l0")
    weight.data = weight.data.T.contiguous().T
    assert torch.equal(called(layer, x)[0], expected)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


def test_a_weight_that_is_computed_anew_takes_the_long_way():
    layer, x = Recurrent(cells.Elman(3, 4)), torch.randn(5, 2, 3)
    before = twice(layer, x)
    parametrize.register_parametrization(layer, "weight_hh_l0", Doubled())
    assert not torch.equal(layer(x)[0], before)
    parametrize.remove_parametrizations(layer, "weight_hh_l0", leave_parametrized=False)
    assert torch.equal(layer(x)[0], before)


class Scaled(LSTM):
    def weights(self, layer, direction=0):
        return {name: 2 * weight for name, weight in super().weights(layer, direction).items()}


def test_parameters_of_a_layer_that_makes_its_weights_itself_have_their_starting_values():
    torch.manual_seed(0)
    expected = LSTM(3, 4).state_dict()
    torch.manual_seed(0)
    found = Scaled(3, 4).state_dict()
    assert_same(list(found.values()), list(expected.values()))


def test_weights_that_a_layer_makes_itself_are_asked_for_each_time():
    layer, plain, x = Scaled(3, 4), LSTM(3, 4), torch.randn(5, 2, 3)
    plain.load_state_dict({name: 2 * weight for name, weight in layer.state_dict().items()})
    assert torch.equal(twice(layer, x), plain(x)[0])
    twice(plain, x)
    zeros = {name: 0 * weight for name, weight in plain.weights(0).items()}
    plain.weights = lambda layer, direction=0: zeros
    assert not plain(x)[0].any()


def test_another_cell_counts_at_once():
    layer, x = Recurrent(cells.Elman(3, 4)), torch.randn(5, 2, 3)
    assert (twice(layer, x) < 0).any()
    layer.cells = (cells.Elman(3, 4, nonlinearity="relu"),)
    assert not (layer(x)[0] < 0).any()


def test_what_was_made_in_inference_mode_is_not_in_the_way_of_training(monkeypatch):
    monkeypatch.setattr(made, "KEPT", 0)  # so that zeros are made anew
    layer, x = Recurrent(cells.Elman(3, 4)).requires_grad_(False), torch.randn(5, 2, 3)
    with torch.inference_mode(), torch.enable_grad():
        layer(x)
    called(layer.requires_grad_(True), x)


def test_no_state_is_kept_for_each_length():
    layer = Recurrent(cells.Elman(1, 2))
    for steps in range(1, 4):
        layer(torch.zeros(steps, 3, 1))
    values = [value for each in kept(layer) for value in vars(each).values()]
    parts = [part for value in values if isinstance(value, list) for part in value]
    assert not any(isinstance(part, torch.Tensor) for part in (*values, *parts))


def test_what_a_layer_is_set_to_counts_at_once():
    layer, x = Recurrent(cells.Elman(3, 4), weight_drop=0.5).eval(), torch.randn(5, 2, 3)
    plain = twice(layer, x)
    assert not torch.equal(layer.train()(x)[0], plain)
    assert torch.equal(layer.eval()(x)[0], plain)
    layer.engine = "eager"
    torch.testing.assert_close(layer(x)[0], plain)
    layer.engine, layer.batch_first = "auto", True
    assert layer(x)[1].shape == (1, 5, 4)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_has_its_own_weights(copied):
    layer, x = LSTM(3, 4), torch.randn(5, 2, 3)
    expected = twice(layer, x)
    other = copied(layer)
    with torch.no_grad():
        layer.get_parameter("weight_hh_l0").zero_()
    assert torch.equal(other(x)[0], expected)
    assert not torch.equal(layer(x)[0], expected)


def test_a_layer_that_was_saved_before_calls_were_kept_is_read():
    layer, x = LSTM(3, 4), torch.randn(5, 2, 3)
    older = LSTM.__new__(LSTM)
    older.__setstate__({name: value for name, value in vars(layer).items() if name != "_calls"})
    assert torch.equal(twice(older, x), layer(x)[0])


def test_under_a_transform_autocast_or_a_rule_of_torch_functions_nothing_is_short():
    layer, x = Recurrent(cells.Elman(3, 4)), torch.randn(5, 2, 3)
    expected = twice(layer, x)
    many = torch.func.vmap(lambda each: layer(each)[0], in_dims=0)(x.expand(3, *x.shape))
    torch.testing.assert_close(many[1], expected)
    with torch.autocast("cpu", torch.bfloat16):
        twice(layer, x)
        assert layer.planned(x) is None
    with torch.device("cpu"):
        assert layer.planned(x) is None
    assert layer.planned(x) is not None


def test_second_derivatives_go_the_same_way():
    layer = Recurrent(cells.Elman(2, 2)).double()
    x = torch.randn(3, 1, 2, dtype=torch.float64, requires_grad=True)
    twice(layer, x)
    assert kept(layer)
    assert torch.autograd.gradgradcheck(lambda t: layer(t)[0], [x])


def test_not_all_kinds_of_calls_are_kept_for_ever(monkeypatch):
    monkeypatch.setattr(autograd, "MOST_CALLS", 3)
    layer = Recurrent(cells.Elman(3, 4))
    for steps in range(1, 9):
        assert layer(torch.randn(steps, 2, 3))[0].shape == (steps, 2, 4)
    assert len(layer._calls) == 3


# What is not as it seems in memory, on the first call and on those like it.


def exact(layer, x):
    eager = Recurrent(layer.cell, engine="eager")
    eager.load_state_dict(layer.state_dict())
    return eager(x)[0]


def test_a_negative_view_is_read_with_its_sign():
    layer, x = Recurrent(cells.Elman(3, 4)), torch.randn(5, 2, 3, dtype=torch.complex64)
    turned = x.conj().imag
    assert turned.is_neg()
    for _ in range(2):
        torch.testing.assert_close(layer(turned)[0], exact(layer, turned))
        y, _ = layer(turned)
        (grad,) = torch.autograd.grad(
            y, layer.get_parameter("bias_hh_l0"), turned.new_ones(y.shape)
        )
        y, _ = layer(turned)
        ones = torch.complex(torch.zeros(y.shape), -torch.ones(y.shape)).conj().imag
        (same,) = torch.autograd.grad(y, layer.get_parameter("bias_hh_l0"), ones)
        assert torch.equal(grad, same)


def test_what_hooks_unpack_may_lie_another_way():
    layer, x = Recurrent(cells.Elman(3, 4)), torch.randn(5, 2, 3)
    expected = called(layer, x)

    def turned(tensor):
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)

    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, turned):
            assert_same(called(layer, x), expected)


@pytest.mark.parametrize("options", [{}, {"checkpoint_every": 2}])
@pytest.mark.parametrize("make", [cells.Elman, cells.QRNN])
def test_many_gradients_at_once_are_those_of_one_after_the_other(make, options):
    layer, x = Recurrent(make(3, 4), **options), torch.randn(5, 2, 3, requires_grad=True)
    y, many = twice(layer, x), torch.randn(3, 5, 2, 4)

    def pull(grad):
        return torch.autograd.grad(y, x, grad, retain_graph=True)[0]

    expected = torch.stack([*map(pull, many)])
    torch.testing.assert_close(torch.func.vmap(pull)(many), expected)
    (found,) = torch.autograd.grad(y, x, many, is_grads_batched=True)
    torch.testing.assert_close(found, expected)


def test_a_default_device_is_not_where_results_go():
    layer, x = Recurrent(cells.Elman(3, 4)), torch.randn(5, 2, 3)
    for _ in range(2):
        with torch.device("meta"):
            y, _ = layer(x)
        torch.testing.assert_close(y, exact(layer, x))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_traced_is_computed_by_what_a_trace_can_see():
    layer, x = Recurrent(cells.Elman(3, 4)), torch.randn(5, 2, 3)
    other = torch.randn(5, 2, 3)
    with torch.no_grad():
        twice(layer, x)
        traced: Any = torch.jit.trace(layer, x)
        torch.testing.assert_close(traced(other)[0], layer(other)[0])


def test_numbers_that_are_nowhere_are_refused():
    layer = Recurrent(cells.Elman(3, 4), engine="cpu")
    layer.weight_hh_l0 = nn.Parameter(torch.empty(4, 4, device="meta"))
    for _ in range(2):
        with pytest.raises(TypeError, match="on meta: its values are in no memory"):
            layer(torch.randn(5, 2, 3))
