"""Write the tables of docs/ anew from results/: `python tools/results.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from metarnn.bench.learn import Regret, table

ROOT = Path(__file__).resolve().parent.parent


def regret() -> str:
    """The table of results/learn.json, and what it was measured with."""
    file = ROOT / "results/learn.json"
    rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    if not rows:
        return "Not measured yet."
    machines, commits, dates = (
        ", ".join(sorted({row[name][:end] for row in rows}))
        for name, end in (("machine", None), ("commit", None), ("date", 10))
    )
    return f"{markdown(table([Regret.from_dict(row) for row in rows]))}\n\n" + (
        f"Measured on {machines}; commits {commits}; {dates}."
    )


def markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *rows = lines
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


TABLES = {"docs/learn.md": {"regret": regret}}


def filled(page: str) -> str:
    """The text of a page of this project, with its tables as the results are now."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, make in TABLES[page].items():
        head, start, rest = text.partition(f"<!-- results: {name} -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"{page} has no place for the table {name!r}")
        text = f"{head}{start}{make()}\n{end}{tail}"
    return text


if __name__ == "__main__":
    for page in TABLES:
        (ROOT / page).write_text(filled(page), encoding="utf-8")
