"""Data for weights, for structure and for choosing the winner share nothing, in every task."""

from itertools import pairwise

import numpy as np
import pytest

from metarnn.tasks import classification, forecasting, translation
from metarnn.tasks.classification.part import parted as parted_examples
from metarnn.tasks.forecasting.part import parted as parted_windows
from metarnn.tasks.translation.part import parted as parted_pairs


def test_no_sentence_is_in_two_parts():
    corpus = translation.load("dates")
    first, second = parted_pairs(corpus, 0.25)
    sources = [set(part["train"].pairs.source) for part in (first, second)]
    sources += [set(corpus[split].pairs.source) for split in ("valid", "test")]
    assert not sources[0] & sources[1]
    assert not (sources[0] | sources[1]) & sources[3]
    assert first["valid"].pairs == second["train"].pairs
    assert second["valid"] is corpus["valid"]
    whole = len(corpus["train"])
    assert len(second["train"]) == pytest.approx(0.25 * whole, rel=0.1)
    train = first["train"]
    assert corpus.target.decode(train.target[5]) == train.pairs.target[5]


@pytest.mark.parametrize("split", ["auto", "80/0/20"])
def test_no_example_is_in_two_parts(split):
    data = classification.load("digits", split=split)
    first, second = parted_examples(data, 0.25)
    parts = [first["train"], first["valid"], second["valid"], data["test"]]
    seen = [{x.tobytes() for x in part.x} for part in parts]
    for k, one in enumerate(seen):
        assert all(not one & other for other in seen[k + 1 :])
    assert ("valid" in data.parts) == (split == "auto")


def test_what_is_forecast_is_in_one_part_of_the_time():
    windows = forecasting.load("lorenz", horizon=4)
    first, second = parted_windows(windows, 0.25)
    stretches = [first.origins("train"), first.origins("valid"), second.origins("valid")]
    ends = [(part[:, 1].min(), part[:, 1].max() + 4) for part in stretches]
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    np.testing.assert_array_equal(first.origins("valid"), second.origins("train"))
    np.testing.assert_array_equal(second.origins("valid"), windows.origins("valid"))
    assert windows.parts[0]["train"] == (0, 2800)


@pytest.mark.parametrize("parted", [parted_examples, parted_pairs, parted_windows])
def test_a_share_is_between_0_and_1(parted):
    with pytest.raises(ValueError, match="between 0 and 1"):
        parted(None, 1.0)
