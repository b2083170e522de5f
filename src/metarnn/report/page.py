"""A report as one file: words, tables and pictures, with nothing to fetch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from metarnn.report.markup import Markup, join, tag

LONG = 110  # characters of a sentence that is set smaller


@dataclass(frozen=True)
class Section:
    """A part of a page: `name` is its anchor, `about` a sentence below its title."""

    name: str
    title: str
    body: Markup
    about: str = ""

    def html(self) -> Markup:
        note = tag("p", self.about, cls="note") if self.about else None
        return tag("section", tag("h2", self.title), note, self.body, id=self.name)


@dataclass(frozen=True)
class Page:
    """What a report says.

    lead     the verdict, in a sentence
    facts    (name, value) of what a reader wants to know first
    missing  what could not be shown, and why
    """

    title: str
    lead: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = ()
    missing: Sequence[str] = ()

    def html(self) -> str:
        """The whole file.

        >>> "<script>alert" in Page("a <script>alert()</script>", "", []).html()
        False
        """
        own = files("metarnn.report")
        style, script = (own.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            # Nothing is fetched and nothing is sent: the browser holds us to it.
            tag("meta", http_equiv="Content-Security-Policy",
                content="default-src 'none'; style-src 'unsafe-inline'; "
                "script-src 'unsafe-inline'; img-src data:"),
            tag("title", f"{self.title}: metarnn report"),
            tag("link", rel="icon", href="data:,"),
            tag("style", Markup(style)),
        )  # fmt: skip
        body = tag("body", self._header(), tag("main", self._main()), self._footer(),
                   tag("script", Markup(script)))  # fmt: skip
        whole = "<!doctype html>\n" + tag("html", head, "\n", body, lang="en") + "\n"
        # A name of a file, or a text, may hold what UTF-8 cannot say.
        return whole.encode("utf-8", "replace").decode("utf-8")

    def _header(self) -> Markup:
        toggle = tag("button", "dark", id="theme", type="button", hidden=True,
                     aria_label="switch between light and dark")  # fmt: skip
        facts = [tag("li", f"{name} ", tag("b", value)) for name, value in self.facts]
        links = [tag("li", tag("a", s.title, href=f"#{s.name}")) for s in self.sections]
        return tag(
            "header",
            tag("div", tag("span", "metarnn report"), toggle, cls="bar"),
            tag("h1", self.title),
            tag("p", self.lead, cls="lead long" if len(self.lead) > LONG else "lead"),
            tag("ul", facts, cls="facts") if facts else None,
            tag("nav", tag("ul", links), aria_label="sections") if links else None,
        )

    def _main(self) -> Markup:
        left_out = None
        if self.missing:
            lines = tag("ul", [tag("li", line) for line in self.missing])
            left_out = tag("aside", tag("b", "Not shown"), lines, cls="missing", id="missing")
        return join([section.html() for section in self.sections], left_out)

    def _footer(self) -> Markup:
        return tag("footer", "Written by ", tag("code", "metarnn report"),
                   ". In plots, the arrow keys move from point to point.")  # fmt: skip
