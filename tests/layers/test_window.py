"""Past inputs stacked for a cell that sees them."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from metarnn.layers.window import stack
from tests.helpers.compare import assert_same


def stacked(x, past, window):
    """Input by input."""
    steps, batch, width = x.shape
    rows = [*past.view(batch, window - 1, width).unbind(1), *x]
    found = [torch.cat(rows[t : t + window], -1) for t in range(steps)]
    return torch.stack(found), torch.cat(rows[steps:], -1)


@pytest.mark.parametrize("window", [2, 3, 4])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 9])
def test_each_step_has_its_past_and_the_next_call_gets_the_rest(window, steps):
    x, past = torch.randn(steps, 2, 3), torch.randn(2, 3 * (window - 1))
    assert_same(stack(x, past, window, None, None), stacked(x, past, window))


@pytest.mark.parametrize("window", [2, 3])
def test_derivatives_of_any_order(window):
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    past = torch.randn(2, 3 * (window - 1), dtype=torch.float64, requires_grad=True)

    def function(x, past):
        return [part.sin() for part in stack(x, past, window, None, None)]

    assert gradcheck(function, (x, past), check_batched_grad=True)
    assert gradgradcheck(function, (x, past))


def test_a_large_gradient_and_one_that_lies_in_no_order():
    x = torch.randn(300, 40, 128, requires_grad=True)
    past, weight = torch.randn(40, 128), torch.randn(256, 40, 300).permute(2, 1, 0)
    found, expected = (
        torch.autograd.grad((function(x, past, 2, *rest)[0] * weight).sum(), x)[0]
        for function, rest in ((stack, (None, None)), (stacked, ()))
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("window", [2, 3])
def test_who_writes_to_what_is_kept_does_not_write_to_the_input(window):
    x, past = torch.randn(4, 2, 3), torch.zeros(2, 3 * (window - 1))
    before = x.clone()
    stack(x, past, window, None, None)[1].fill_(7)
    assert torch.equal(x, before)
