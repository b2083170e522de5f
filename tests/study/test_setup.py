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


@pytest.mark.parametrize(
    ("passes", "share"), [(0.5, 0.0), (2.0, 0.0), (6.0, 0.5), (10.0, 1.0), (100.0, 1.0)]
)
def test_text_that_is_hardly_ever_read_twice_needs_no_dropout(passes, share):
    entry = tasks.find("lm")
    base = configured(entry, look("pydoc"), Options())
    chosen = setup.regularised("lm", base, passes)
    assert base.output_dropout > 0
    assert chosen.output_dropout == pytest.approx(share * base.output_dropout)
    assert chosen.input_dropout == pytest.approx(share * base.input_dropout)


def test_windows_of_series_overlap_so_that_their_dropout_stays():
    """A single pass over windows reads each value many times."""
    base = configured(tasks.find("forecasting"), look("sunspots"), Options())
    assert base.dropout > 0
    assert setup.regularised("forecasting", base, 0.5).dropout == base.dropout


def test_a_large_vocabulary_has_an_adaptive_softmax_on_a_cpu():
    base = configured(tasks.find("lm"), look("pydoc"), Options())
    assert setup.for_vocabulary(base, 10_000, "cpu").cutoffs == (1000, 4000)
    assert setup.for_vocabulary(base, 10_000, "cuda").cutoffs == ()
    assert setup.for_vocabulary(base, 100, "cpu").cutoffs == ()
