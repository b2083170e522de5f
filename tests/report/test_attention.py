from xml.etree import ElementTree

import pytest

from metarnn.report import heatmap


def test_every_weight_is_a_square_as_dark_as_it_is_large():
    weights = [[0.9, 0.1, 0.0], [0.25, 0.5, 0.25]]
    picture = ElementTree.fromstring(heatmap(weights, ["<b>", "&"], ["x", "y", "z"]))
    squares = [r for r in picture.iter("{http://www.w3.org/2000/svg}rect") if "x" in r.attrib]
    assert [float(s.attrib["fill-opacity"]) for s in squares] == [w for row in weights for w in row]
    texts = [t.text for t in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["<b>", "&", "x", "y", "z"]


def test_weights_that_do_not_fit_the_words_are_refused():
    with pytest.raises(ValueError, match="weights='1 × 2': expected 1 rows of 3"):
        heatmap([[0.5, 0.5]], ["a"], ["x", "y", "z"])
