"""The page around what is shown: its frame, its colours, what it promises."""

import re
from importlib.resources import files

import pytest

from metarnn.report.markup import tag
from metarnn.report.page import Page, Section
from tests.helpers.page import Page as Read

CSS = files("metarnn.report").joinpath("page.css").read_text("utf-8")


def luminance(colour):
    """Relative luminance, as WCAG 2 has it."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


PAIRS = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", CSS)
}


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["ink", "soft", "accent"])
def test_text_has_contrast(name, scheme):
    for ground in ("paper", "raised"):
        assert contrast(PAIRS[name][scheme], PAIRS[ground][scheme]) >= 4.5


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_lines_have_contrast(scheme):
    lines = [name for name in PAIRS if re.fullmatch(r"c\d", name)]
    assert len(lines) == 8
    for name in lines:
        assert contrast(PAIRS[name][scheme], PAIRS["paper"][scheme]) >= 3


def test_text_on_the_darkest_squares_has_contrast():
    for scheme in (0, 1):
        assert contrast(PAIRS["on-accent"][scheme], PAIRS["accent"][scheme]) >= 4.5


def test_what_is_said_stands_where_it_belongs_and_is_escaped():
    bad = "<script>alert(1)</script>"
    section = Section("one", bad, tag("p", bad), bad)
    page = Page(bad, bad, [section], [(bad, bad)], [bad])
    read = Read(page.html())
    assert read.sections == ["one"]
    assert len(read.scripts) == 1
    assert read.words.count(bad) == 10  # title, h1, lead, link, h2, note, body, 2 facts, missing


def test_what_utf8_cannot_say_does_not_stop_a_page():
    assert "a?b" in Read(Page("a\ud800b", "", []).html()).words


def test_the_browser_is_told_to_fetch_nothing():
    tags = Read(Page("a", "b", []).html()).tags
    policy = next(a["content"] for _, a in tags if a.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert "http" not in policy
