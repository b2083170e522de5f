"""The zeros that states begin with are shared between calls: nobody may notice."""

import pytest
import torch

from metarnn.engines.zeros import zeros
from tests.helpers.cases import EVERY, RUNNABLE, make, parts, randn
from tests.helpers.compare import assert_same

CPU = torch.device("cpu")


@pytest.mark.medium
@pytest.mark.parametrize(("name", "engine"), RUNNABLE)
def test_overwriting_what_a_call_returned_changes_no_later_call(name, engine):
    layer, x = make(EVERY[name], engine=engine), randn(1, 2, 3)
    with torch.no_grad():
        first = layer(x)
        kept = [t.clone() for t in (first[0], *parts(first[1]))]
        for tensor in (first[0], *parts(first[1])):
            tensor.fill_(7)
        again = layer(x)
    assert_same([again[0], *parts(again[1])], kept)


def test_zeros_first_made_in_inference_mode_can_be_differentiated_later():
    with torch.inference_mode():
        first = zeros((1, 2, 5), torch.float32, CPU)
    later = zeros((1, 2, 5), torch.float32, CPU)
    assert later is first
    weight = torch.ones(5, requires_grad=True)
    (later * weight).sum().backward()
    assert weight.grad is not None


def test_under_a_transform_zeros_are_made_anew():
    shared = zeros((1, 2, 6), torch.float32, CPU)
    seen = []

    def function(x):
        seen.append(zeros((1, 2, 6), torch.float32, CPU))
        return x

    torch.func.vmap(function)(torch.ones(3))
    assert seen[0] is not shared
