"""Units that a search found, each with where it came from.

`NAME.json` is its graph, which any width can be given; `NAME.about.json` tells how it was found,
and what the verdict said.

>>> names()
['ptb-products', 'pydoc-product']
>>> print(unit("pydoc-product"))
n0 = lin(x, h)
n1 = lin(x)
n3 = prod(n1, n0)
h' = tanh(lin(x, n3))
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metarnn.cells import check
from metarnn.search.genotype import Genotype

HERE = Path(__file__).parent
PREFIX = "found/"  # of their names, where names of built-in cells and files are given too


def names() -> list[str]:
    return sorted(path.name.removesuffix(".about.json") for path in HERE.glob("*.about.json"))


def path(name: str) -> Path:
    """The file of a unit's graph, by its name, with or without `found/`."""
    return HERE / f"{check.one_of('cell', name.removeprefix(PREFIX), names())}.json"


def about(name: str) -> dict[str, Any]:
    """How a unit was found, and its verdict."""
    return json.loads(path(name).with_suffix(".about.json").read_text(encoding="utf-8"))


def unit(name: str) -> Genotype:
    found = about(name)
    return Genotype.parse(found["unit"], found["bias"])
