"""Docstrings here are plain text; this makes them what Sphinx reads.

A paragraph stays one, `code` is code, and nothing else in it is markup. Lines of a name, two or
more spaces and an explanation become a list of terms. Formulas below one another, examples and
indented blocks stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

TERM = re.compile(r"(\S(?:.*?\S)?) {2,}(\S.*)")
FORMULA = re.compile(r"[^=.:`]{1,24} = .*")
FIELD = re.compile(r"(Args|Returns|Raises):$")


def as_rst(lines: Sequence[str]) -> list[str]:
    """The lines of a docstring as reStructuredText."""
    out: list[str] = []
    for block in _blocks(lines):
        if block[0].startswith(">>>"):
            out += [*block, ""]
        elif all(line.startswith(" ") for line in block) or _is_formulas(block):
            if out[-2:-1] == ["**Args**"]:
                out += [*_arguments(block), ""]
            else:
                out += [".. code-block:: text", "", *(f"    {line}" for line in block), ""]
        elif TERM.fullmatch(block[0]):
            out += [*_terms(block), ""]
        else:
            out += [*_paragraph(block), ""]
    return out


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """What stands between empty lines; an indented part after a paragraph is a block of its own."""
    block: list[str] = []
    for line in [*(line.rstrip() for line in lines), ""]:
        if not line:
            if block:
                yield block
            block = []
            continue
        indented = line.startswith(" ")
        table = bool(block) and bool(TERM.fullmatch(block[0])) and not block[0].startswith(" ")
        example = bool(block) and block[0].startswith(">>>")
        if block and not table and not example and indented != block[-1].startswith(" "):
            yield block
            block = []
        block.append(line)


def _is_formulas(block: Sequence[str]) -> bool:
    return len(block) > 1 and all(FORMULA.fullmatch(line) for line in block)


def _terms(block: Sequence[str]) -> Iterator[str]:
    for line in block:
        found = TERM.fullmatch(line)
        if found and not line.startswith(" "):
            yield from (f"``{found[1]}``", f"    {_escaped(found[2])}")
        else:  # it goes on
            yield f"    {_escaped(line.strip())}"


def _arguments(block: Sequence[str]) -> Iterator[str]:
    indent = len(block[0]) - len(block[0].lstrip())
    for line in block:
        name, colon, about = line.strip().partition(": ")
        if colon and not line[indent].isspace():
            yield from (f"``{name}``", f"    {_escaped(about)}")
        else:
            yield f"    {_escaped(line.strip())}"


def _paragraph(block: Sequence[str]) -> Iterator[str]:
    text = _escaped("\n".join(block))
    if FIELD.fullmatch(block[0]):
        text = f"**{block[0][:-1]}**"
    yield from text.split("\n")


def _escaped(text: str) -> str:
    """Text in which only `code` is markup."""
    parts = re.split(r"(`[^`]+`)", text)
    plain = (re.sub(r"([\\*|_`])", r"\\\1", part) for part in parts[::2])
    code = (f"`{part}`" for part in parts[1::2])
    mixed = [next(plain)]
    for each, after in zip(code, plain, strict=True):
        # Markup must end before a letter: `Map`s.
        mixed += [each, "\\ " + after if after[:1].isalnum() else after]
    return "".join(mixed)
