from typing import cast

import pytest
import torch

from metarnn import cells
from metarnn.engines import native
from tests.helpers.cases import make, randn


@pytest.mark.parametrize(
    ("cell", "op"),
    [
        (cells.LSTM(3, 4), "lstm"),
        (cells.LSTM(3, 4, proj_size=2, bias=False), "lstm"),
        (cells.LSTM(3, 4, peephole=True), ""),
        (cells.GRU(3, 4), "gru"),
        (cells.GRU(3, 4, reset="before"), ""),
        (cells.Elman(3, 4), "rnn_tanh"),
        (cells.Elman(3, 4, "relu"), "rnn_relu"),
        (cells.Elman(3, 4, torch.tanh), ""),
        (cells.ONLSTM(3, 4), ""),
        (type("Mine", (cells.LSTM,), {})(3, 4), ""),  # may compute anything
    ],
)
def test_torch_computes_exactly_the_plain_cells(cell, op):
    assert native.op(cell) == op


def test_one_forward_pass_can_be_differentiated_twice():
    layer, x = make(cells.LSTM(3, 4), engine="native"), randn(4, 2, 3).requires_grad_()
    loss = layer(x)[0].square().sum()
    first = torch.autograd.grad(loss, x, retain_graph=True)
    again = torch.autograd.grad(loss, x)
    assert torch.equal(first[0], again[0])


class Stop(torch.autograd.Function):
    """Passes values on, and no gradient back."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *gradients):
        return None


def test_where_no_gradient_comes_back_none_goes_on():
    layer = make(cells.GRU(3, 4), engine="native")
    output, final = layer(randn(4, 2, 3))
    weights = list(layer.parameters())
    loss = [cast(torch.Tensor, Stop.apply(value)).sum() for value in (output, final)]
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    assert all(gradient is None or not gradient.any() for gradient in found)


def test_without_gradients_the_result_carries_no_graph():
    layer = make(cells.GRU(3, 4), engine="native")
    with torch.no_grad():
        assert layer(randn(4, 2, 3))[0].grad_fn is None
    assert layer.requires_grad_(False)(randn(4, 2, 3))[0].grad_fn is None


def test_weights_changed_in_place_before_the_backward_pass_are_noticed():
    layer = make(cells.LSTM(3, 4), engine="native")
    loss = layer(randn(4, 2, 3))[0].sum()
    with torch.no_grad():
        layer.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
