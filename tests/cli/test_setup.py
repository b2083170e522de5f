"""Settings that follow from data, for `metarnn learn`."""

import os

import pytest

from metarnn.cli import setup
from metarnn.tasks.look import Finding


@pytest.mark.parametrize(
    ("count", "settings"),
    [
        (20, {"batch": 3, "split": "70/15/15"}),
        (1000, {"batch": 64}),
        (30_000, {"batch": 64, "split": "93.3333/3.3333/3.3333"}),
    ],
)
def test_pairs_are_shared_out_by_their_number(count, settings, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"wort {k}\tword {k}\n" for k in range(count)))
    found = setup.settings(Finding("translation", (), str(path)))
    assert found == {"data": str(path), **settings}


def test_a_large_text_is_not_tested_on_more_than_a_share(tmp_path):
    path = tmp_path / "text.txt"
    path.touch()
    os.truncate(path, 100 * setup.TESTED)
    split = setup.settings(Finding("lm", (), str(path)))["split"]
    train, valid, test = map(float, split.split("/"))
    assert valid == test == pytest.approx(1.0)
    assert train + valid + test == pytest.approx(100)
