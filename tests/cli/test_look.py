"""What is looked at in a trained model is what it computes."""

import torch

import metarnn
from metarnn.report.probing import forwards


def test_the_forward_half_of_two_directions_computes_the_same():
    torch.manual_seed(0)
    layer = metarnn.GRU(3, 4, bidirectional=True, engine="eager")
    x = torch.randn(6, 2, 3)
    torch.testing.assert_close(forwards(layer)(x)[0], layer(x)[0][..., :4])


def test_a_layer_of_one_direction_is_taken_as_it_is():
    layer = metarnn.GRU(3, 4)
    assert forwards(layer) is layer
