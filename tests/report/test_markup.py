"""Nothing that is shown can become part of the page."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metarnn.report.markup import Markup, join, table, tag
from tests.helpers.page import Page


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_comes_out_as_it_went_in(content, attribute):
    content = content.replace("\r", "").replace("\0", "")  # which HTML has no way to write
    page = Page(tag("p", content, title=attribute))
    assert page.words == content
    assert len(page.tags) == 1


def test_markup_stays_and_text_is_escaped_however_deep_it_stands():
    made = tag("ul", [tag("li", "<b>"), "<i>", ["&", Markup("<hr>")]])
    assert made == "<ul><li>&lt;b&gt;</li>&lt;i&gt;&amp;<hr></ul>"


def test_joining_markup_with_text_escapes_the_text():
    assert join(Markup("<hr>"), "<", None) == "<hr>&lt;"


@pytest.mark.parametrize("value", [None, False])
def test_what_is_not_given_is_no_attribute(value):
    assert tag("p", cls=value) == "<p></p>"


def test_a_table_names_its_rows_and_its_columns():
    page = Page(table(["unit", "nll"], [["gru", "1.0"]], "scores"))
    scopes = [given["scope"] for name, given in page.tags if name == "th"]
    assert scopes == ["col", "col", "row"]
