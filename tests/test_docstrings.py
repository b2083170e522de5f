"""The examples in docstrings run and print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest
import torch

import metarnn
from metarnn import cells, graph

SOURCE = Path(__file__).resolve().parents[1] / "src"
MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8") and path.name != "__init__.py"
]
MODULES += ["metarnn.cells"]
# What a reader has at hand; a module's own names come first.
NAMES = {"torch": torch, "metarnn": metarnn, "cells": cells, **vars(graph), **vars(cells)}


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    tests = finder.find(module, globs={**NAMES, **vars(module)})
    report: list[str] = []
    for test in tests:
        torch.manual_seed(0)
        runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).attempted > 0
    assert not report, "".join(report)
