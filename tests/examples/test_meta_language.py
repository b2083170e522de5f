"""The example learns, and fits on a page."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "examples" / "meta_language.py"


@pytest.mark.medium
def test_it_learns_and_is_shorter_than_sixty_lines():
    lines = PATH.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 60
    spec = importlib.util.spec_from_file_location("meta_language", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main(12) < 6  # bits: a uniform guess takes 6.7
