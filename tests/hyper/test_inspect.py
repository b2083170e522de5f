"""How generated weights move: the data against their definitions, and a picture that parses."""

from xml.etree import ElementTree

import pytest
import torch

from metarnn import MetaRecurrent, Recurrent, cells, hyper
from metarnn.hyper import HyperLSTM, Mogrifier, Motion, motion
from tests.helpers.cases import randn, randomize
from tests.helpers.compare import assert_close

LAYERS = {
    "step": lambda: MetaRecurrent(cells.LSTM(3, 4), 2, form=("scale", "lowrank")),
    "sequence": lambda: MetaRecurrent(cells.LSTM(3, 4), context="sequence"),
    "state": lambda: MetaRecurrent(cells.SRU(3, 4), 2, context="state"),
    "hyperlstm": lambda: Recurrent(HyperLSTM(3, 4, 5)),
    "mogrifier": lambda: Recurrent(Mogrifier(cells.GRU(3, 4), 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_that_generates_shows_what(name):
    layer = LAYERS[name]().double()
    randomize(layer)
    found = motion(layer, randn(7, 3))
    assert len(found) == layer.num_layers
    for moved in found:
        assert {len(d) for d in moved.numbers.values()} == {7}
        assert (moved.changes()[1:] > 0).all() == (name != "sequence")
        picture = moved.svg(list("a b_c\n<"), "how it moves")
        ElementTree.fromstring(picture)
        assert "7 steps" in str(moved)


def test_numbers_written_inside_the_step_are_those_the_step_uses():
    layer = MetaRecurrent(cells.GRU(3, 4), context="state", width=3, dtype=torch.float64)
    randomize(layer)
    x = randn(5, 3)
    (moved,) = motion(layer, x)
    # The same numbers handed to the unit from outside give the same outputs.
    given = hyper.Generated(cells.GRU(3, 4), layer.cell.forms)  # type: ignore[attr-defined]
    from metarnn.cells import Theta, shapes

    weights = layer.weights(0)
    theta = Theta(given, {name: weights[name] for name in shapes(given)})
    state, outputs = (torch.zeros(1, 4, dtype=torch.float64),), []
    for t in range(5):
        row = {name: d[t : t + 1] for name, d in moved.numbers.items()}
        state = given.step(theta, given.drive(theta, {"x": x[t : t + 1], **row}), state)
        outputs.append(state[0])
    assert_close(torch.cat(outputs), layer(x)[0])


def test_norms_changes_and_movers_are_what_they_are_called():
    moved = Motion({"a": torch.tensor([[0.0, 0], [3, 4], [3, 4], [0, 0]])})
    torch.testing.assert_close(moved.norms()["a"], torch.tensor([0, 5, 5, 0]) / 2**0.5)
    assert moved.changes().tolist() == [0, 5, 0, 5]
    assert moved.movers(["x", "y", "x", "y"]) == [("y", 5.0, 2), ("x", 0.0, 1)]
    way, share = moved.path()
    torch.testing.assert_close(way[:, 0].abs(), torch.full((4,), 2.5))
    torch.testing.assert_close(share, torch.tensor([1.0, 0.0]), atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="4, one a step"):
        moved.movers(["x"])


def test_a_plain_layer_generates_nothing():
    with pytest.raises(ValueError, match="a layer of GRU"):
        motion(Recurrent(cells.GRU(3, 4)), torch.randn(5, 3))
