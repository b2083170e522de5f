"""A page of HTML as a test sees it: its tags balanced, its sections, its words."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Reads a page; an AssertionError where a tag is left open or closed twice.

    sections  their names, in their order
    words     all text that a person reads
    scripts   the content of each script
    fetched   addresses that a browser would fetch
    ids       every id
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.sections: list[str] = []
        self.words, self.scripts, self.fetched, self.ids = "", [], [], []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        assert len(given) == len(attrs), f"an attribute of <{tag}> is there twice"
        self.tags.append((tag, given))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "section":
            self.sections.append(given["id"])
        if "id" in given:
            self.ids.append(given["id"])
        self.fetched += [given[k] for k in ("src", "srcset", "data") if k in given]
        if tag == "link":
            self.fetched.append(given["href"])
        assert not any(name.startswith("on") for name in given), f"a script in <{tag}>"

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes another"

    def handle_data(self, data):
        if self._open and self._open[-1] == "script":
            self.scripts.append(data)
        elif not self._open or self._open[-1] != "style":
            self.words += data
