import json
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from torch import nn

from metarnn.hyper import Metadata, hypernetize
from metarnn.report import task_map

ABOUT = Metadata({"rate": (0.0, 1.0), "size": (0.0, 1.0)})
ROWS = {"rate": [float(k) for k in range(6)], "size": [float(k % 2) for k in range(6)]}


class Scaled(nn.Module):
    """The first weight is twice the first number of the context, the other is 0."""

    def __init__(self, context, numbers, start):
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(2, context))
        with torch.no_grad():
            self.matrix[0, 0] = 2

    def forward(self, context):
        return {"weight": context @ self.matrix.mT}


def known():
    """Embeddings that are the descriptor itself."""
    many = hypernetize(
        nn.Linear(2, 1, bias=False), Scaled, descriptor=ABOUT, context=4, start="hyperfan"
    )
    many.embed = nn.Sequential(nn.Identity())
    return many


def test_influences_are_the_slopes_of_weights_by_fields():
    found = task_map(known(), ROWS)
    # One of two weights has slope 2: the root of the mean of 4 and 0.
    assert found.influence["rate"]["weight"] == pytest.approx(2**0.5)
    assert found.influence["size"]["weight"] == 0


def test_distances_are_those_of_the_weights():
    found = task_map(known(), ROWS)
    expected = 2 * torch.arange(6.0).sub(torch.arange(6.0).unsqueeze(1)).abs() / 2**0.5
    torch.testing.assert_close(found.distances, expected)


def test_a_map_keeps_the_distances_of_what_lies_in_a_plane():
    found = task_map(known(), ROWS)
    torch.testing.assert_close(torch.cdist(found.weights, found.weights), found.distances * 2**0.5)
    assert found.explained == pytest.approx((1.0, 1.0))


def test_it_is_data_and_a_picture():
    many = hypernetize(nn.Linear(2, 1), descriptor=ABOUT)
    found = task_map(many, ROWS, names=[f"task {k}" for k in range(6)])
    assert json.loads(found.json())["names"][5] == "task 5"
    picture = found.svg(values=ROWS["rate"], title="a < b")
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert "what rate moves" in picture


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: task_map(known(), {"rate": [1.0]}), "at least two"),
        (lambda: task_map(known(), ROWS, names=["a"]), "6, one a task"),
        (lambda: task_map(known(), ROWS).svg(values=[1.0]), "6, one a task"),
    ],
)
def test_a_map_that_says_nothing_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
