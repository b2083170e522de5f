"""A plot shows the numbers it was given, where they belong."""

import json
import math
import re

import numpy as np
import pytest

from metarnn.report.plot import BOTTOM, HEIGHT, LEFT, MOST, RIGHT, TOP, WIDTH, Line, Plot
from metarnn.report.strip import strip
from tests.helpers.page import Page


def drawn(figure):
    """The places of each line in the picture."""
    lines = re.findall(r'<polyline points="([^"]*)"', figure)
    return [[tuple(map(float, p.split(","))) for p in line.split()] for line in lines]


def data(figure):
    (found,) = (a["data-plot"] for _, a in Page(figure).tags if "data-plot" in a)
    return json.loads(found)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_places_are_a_straight_map_of_the_numbers(logarithmic):
    x, y = np.array([3.0, 10.0, 50.0, 80.0]), np.array([0.2, 5.0, 3.0, 1.0])
    line = Line(list(zip(x, y, strict=True)))
    (places,) = drawn(Plot({"a": line}, "t", "x", "y", logarithmic).figure())
    across, up = np.array(places).T
    height = np.log10(y) if logarithmic else y
    for numbers, where in ((x, across), (height, -up)):
        slope = (where[1:] - where[0]) / (numbers[1:] - numbers[0])
        assert np.allclose(slope, slope[0], rtol=2e-2)
        assert slope[0] > 0
    assert across.min() >= LEFT
    assert across.max() <= WIDTH - RIGHT
    assert up.min() >= TOP
    assert up.max() <= HEIGHT - BOTTOM


def test_what_a_pointer_finds_is_what_is_drawn():
    figure = Plot({"a": Line([(0, 1.5), (1, 2.5)]), "b": Line([(1, 9.0)])}, "t", "x", "y").figure()
    a, b = data(figure)["series"]
    assert [tuple(p) for p in a["at"]] == drawn(figure)[0]
    assert (a["y"], b["x"], b["y"]) == (["1.5", "2.5"], ["1"], ["9"])


def test_what_is_not_finite_is_left_out_of_picture_and_numbers():
    points = [(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0), (4, -1.0)]
    figure = Plot({"a": Line(points)}, "t", "x", "y", logarithmic=True).figure()
    assert len(drawn(figure)[0]) == 2  # nor has a logarithm what is below 0
    assert "nan" not in figure
    assert "inf" not in figure


def test_nothing_to_plot_is_no_plot():
    assert Plot({"a": Line([]), "b": Line([(0, math.nan)])}, "t", "x", "y").figure() == ""


@pytest.mark.parametrize("points", [[(5, 2.0)], [(0, 3.0), (1, 3.0)], [(0, 0.0), (0, 0.0)]])
def test_a_point_or_a_level_line_is_a_picture_too(points):
    for x, y in drawn(Plot({"a": Line(points)}, "t", "x", "y").figure())[0]:
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT


def test_a_long_line_keeps_its_ends_and_no_more_points_than_a_screen_shows():
    n = 50_000
    figure = Plot({"a": Line([(k, k % 7) for k in range(n)])}, "t", "x", "y").figure()
    assert len(drawn(figure)[0]) == MOST
    assert len(figure) < 60_000
    found = data(figure)["series"][0]["x"]
    assert (found[0], found[-1]) == ("0", "49,999")


def test_a_band_lies_around_its_line():
    line = Line([(0, 1.0), (1, 2.0)], [0.5, 1.0], [1.5, 4.0])
    figure = Plot({"a": line}, "t", "x", "y").figure()
    (corners,) = re.findall(r'<polygon points="([^"]*)"', figure)
    high0, high1, low1, low0 = (float(c.split(",")[1]) for c in corners.split())
    (_, y0), (_, y1) = drawn(figure)[0]
    assert high0 < y0 < low0
    assert high1 < y1 < low1
    assert data(figure)["series"][0]["y"][1] == "2 (1 to 4)"


def test_a_plot_can_be_read_without_seeing_it():
    figure = Plot({"<gru>": Line([(0, 1.0)])}, "nll & more", "update", "nll").figure()
    page = Page(figure)
    names = [name for name, _ in page.tags]
    assert {"title", "desc", "details", "table"} <= set(names)
    svg = dict(page.tags)["svg"]
    assert (svg["role"], svg["tabindex"], svg["aria-label"]) == ("img", "0", "nll & more")
    assert "<gru>" in page.words


def test_each_seed_is_a_dot_and_what_blew_up_is_said():
    made = strip({"gru": [1.0, 2.0, 3.0], "found": [math.inf]}, "nll")
    page = Page(made)
    assert [name for name, _ in page.tags].count("circle") == 3
    assert "gru, seed 2: 2.0000 (mean 2.0000)" in page.words
    assert "found not finite" in page.words


def test_the_longest_name_of_a_unit_has_room_on_a_phone():
    name = "meta best of random"
    (label,) = re.findall(rf'<text x="([\d.]+)"[^>]*>{name}<', str(strip({name: [1.0]}, "nll")))
    assert float(label) >= 10 * len(name)  # half of 20 pixels a letter
