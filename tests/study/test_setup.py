"""Settings that follow from data, for `metarnn learn`."""

import pytest

from metarnn.runs import tasks
from metarnn.study import setup
from metarnn.study.learn import Options, configured
from metarnn.tasks.look import Finding, look


@pytest.mark.parametrize(
    ("count", "settings"),
    [(20, {"batch": 3, "split": "70/15/15"}), (1000, {"batch": 64}), (30_000, {"batch": 64})],
)
def test_few_pairs_have_small_batches_and_more_for_validation(count, settings, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"wort {k}\tword {k}\n" for k in range(count)))
    chosen = setup.settings(Finding("translation", (), str(path)))
    assert chosen == {"data": str(path), **settings}


def test_a_short_text_has_batches_that_it_fills(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a" * 1000)
    chosen = setup.settings(Finding("lm", (), str(path)))
    assert 0 < 2 * chosen["batch"] * chosen["length"] <= 0.9 * 1000


def test_a_text_is_divided_as_metarnn_train_divides_it(tmp_path):
    """A score of `learn` and one of `train` are of the same examples."""
    path = tmp_path / "text.txt"
    path.write_text("a text. " * 5000)
    entry = tasks.find("lm")
    base = configured(entry, look(str(path)), Options())
    assert base.split == entry.kind().split
