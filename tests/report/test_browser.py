"""The page in a real browser: Chromium, where there is one."""

import json

import pytest

from metarnn.report import exhibits
from metarnn.report.attention import heatmap
from metarnn.report.page import Page, Section
from metarnn.report.write import write_report
from tests.helpers.browser import CHROMIUM, DRIVER, browser
from tests.helpers.study import make_study

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver"),
]
TIP = "return document.querySelector('#{} .tip').hidden ? '' : " \
      "document.querySelector('#{} .tip').textContent"  # fmt: skip


@pytest.fixture(scope="module")
def window():
    with browser() as window:
        yield window


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return write_report([make_study(tmp_path_factory.mktemp("page") / "study")])


def tip(window, section):
    return window.run(TIP.format(section, section))


def centre(window, selector):
    found = window.run(
        f"const e = document.querySelector({json.dumps(selector)});"
        "e.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]"
    )
    return found


def test_every_section_is_seen_and_the_console_stays_silent(window, study):
    window.resize(1280, 800)
    window.open(study)
    heights = window.run(
        "return [...document.querySelectorAll('section')].map(s => [s.id, s.offsetHeight])"
    )
    names = [name for name, _ in heights]
    assert names == ["verdict", "learning", "cell", "search", "speed", "origin"]
    assert all(height > 60 for _, height in heights)
    assert window.errors() == []


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_nothing_is_wider_than_the_screen(width, window, study):
    window.resize(width, 800, touch=width < 500)
    window.open(study)
    assert window.run("return document.documentElement.scrollWidth") <= width


def test_a_pointer_is_told_the_numbers_below_it(window, study):
    window.resize(1280, 800)
    window.open(study)
    assert tip(window, "learning") == ""
    window.point(*centre(window, "#learning svg"))
    said = tip(window, "learning")
    assert said.startswith("update 20")
    assert "gru: 2.85 (2.8 to 2.9)" in said
    window.point(2, 2)
    assert tip(window, "learning") == ""


def test_the_arrow_keys_move_from_point_to_point(window, study):
    window.resize(1280, 800)
    window.open(study)
    window.run("document.querySelector('#learning svg').focus()")
    window.press("ArrowRight")
    assert tip(window, "learning").startswith("update 10")
    window.press("ArrowRight")
    assert tip(window, "learning").startswith("update 20")
    window.press("End")
    assert tip(window, "learning").startswith("update 30")
    window.press("Escape")
    assert tip(window, "learning") == ""


def test_dots_and_squares_say_what_they_are(window, study, tmp_path):
    window.resize(1280, 800)
    window.open(study)
    window.point(*centre(window, "#verdict circle"))
    assert tip(window, "verdict") == "lstm, seed 1: 3.0000 (mean 3.0050)"
    drawn = exhibits.attended(heatmap([[0.25, 0.75], [1, 0]], ["a", "b"], ["x", "<y>"]), 2, "c")
    page = tmp_path / "page.html"
    page.write_text(Page("p", "", [Section("work", "w", drawn)]).html(), encoding="utf-8")
    window.open(page)
    window.run("document.querySelector('#work svg').focus()")
    window.press("ArrowDown")
    window.press("ArrowRight")
    assert tip(window, "work") == "a ← <y>: 0.750"
    window.press("ArrowDown")
    assert tip(window, "work") == "b ← <y>: 0.000"
    assert window.errors() == []


def test_light_and_dark_follow_the_system_until_the_button_is_pressed(window, study):
    ground = "return getComputedStyle(document.body).backgroundColor"
    window.resize(1280, 800)
    found = {}
    for scheme in ("light", "dark"):
        window.colours(scheme)
        window.open(study)
        window.run("localStorage.clear()")
        found[scheme] = window.run(ground)
    assert found == {"light": "rgb(253, 253, 252)", "dark": "rgb(20, 23, 26)"}
    window.open(study)
    window.run("document.getElementById('theme').click()")
    assert window.run(ground) == found["light"]
    window.open(study)
    assert window.run(ground) == found["light"]  # remembered
    window.run("localStorage.clear()")


def test_paper_is_white_whatever_the_screen_is(window, study):
    window.colours("dark", media="print")
    window.open(study)
    assert window.run("return getComputedStyle(document.body).backgroundColor") == (
        "rgb(253, 253, 252)"
    )
    assert window.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
    window.colours("light")
