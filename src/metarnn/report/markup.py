"""HTML that cannot be broken by what it shows: whatever is not `Markup` is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TypeAlias

VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})


class Markup(str):
    """Text that is HTML already, and safe."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """An element; children are escaped unless they are `Markup`.

    >>> print(tag("p", "1 < 2 ", tag("b", "&"), cls="small"))
    <p class="small">1 &lt; 2 <b>&amp;</b></p>

    `cls` is the attribute class, `_` in other names a hyphen; None and False leave one out.
    """
    written = "".join(
        f" {_named(key)}" if value is True else f' {_named(key)}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    start = f"<{name}{written}>"
    return Markup(start if name in VOID else f"{start}{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children one after the other, each escaped unless it is `Markup`.

    >>> print(join("<", tag("i", "x"), None, ["a", "b"]))
    &lt;<i>x</i>ab
    """
    parts = []
    for child in children:
        if isinstance(child, Markup):
            parts.append(str(child))
        elif isinstance(child, str):
            parts.append(escape(child))
        elif child is not None:
            parts.append(str(join(*child)))
    return Markup("".join(parts))


def table(
    head: Sequence[Child], rows: Iterable[Sequence[Child]], caption: str = "", cls: str = ""
) -> Markup:
    """A table whose first column names its rows; it scrolls by itself where it is too wide."""
    top = tag("tr", [tag("th", cell, scope="col") for cell in head])
    body = [
        tag("tr", tag("th", first, scope="row"), [tag("td", cell) for cell in rest])
        for first, *rest in rows
    ]
    title = tag("caption", caption) if caption else None
    inner = tag("table", title, tag("thead", top), tag("tbody", body), cls=cls or None)
    # What scrolls must be within reach of the keyboard.
    label = caption or "table"
    return tag("div", inner, cls="wide", tabindex="0", role="region", aria_label=label)


def figure(
    picture: Markup, caption: Child = None, data: Child = None, **attributes: str | None
) -> Markup:
    """A picture with words below it, and its numbers as a table that unfolds."""
    words = tag("figcaption", caption) if caption else None
    numbers = tag("details", tag("summary", "numbers"), data) if data else None
    return tag("figure", picture, words, numbers, **attributes)


def _named(key: str) -> str:
    return "class" if key == "cls" else key.strip("_").replace("_", "-")
