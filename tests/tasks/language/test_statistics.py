import math
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metarnn.tasks.language.plot import zipf_svg, zipf_text
from metarnn.tasks.language.statistics import describe, zipf_slope

WORDS = st.lists(st.sampled_from(["the", "cat", "Sat", "on", "a", "mat", "."]), max_size=40)


@given(st.lists(WORDS, min_size=1, max_size=4), st.integers(1, 9))
def test_n_grams_are_counted_within_documents_however_they_are_cut(documents, size):
    texts = [" ".join(words) for words in documents]
    pieces = [[text[k : k + size] for k in range(0, len(text), size)] for text in texts]
    found = describe(pieces)
    for n in (1, 2, 3):
        expected = Counter()
        for words in documents:
            lower = [word.lower() for word in words if word != "."]
            expected.update(" ".join(lower[k : k + n]) for k in range(len(lower) - n + 1))
        gram = found.grams[n - 1]
        assert gram.total == sum(expected.values())
        assert gram.distinct == len(expected)
        assert gram.once == sum(c == 1 for c in expected.values())
        assert dict(gram.top) == {w: expected[w] for w, _ in gram.top}
        assert gram.curve.tolist() == sorted(expected.values(), reverse=True)
    assert found.documents == len(documents)
    assert found.characters == sum(map(len, texts))


def test_stop_words_lead_the_counts():
    found = describe([["The cat and the dog and the bird.\n"]])
    assert found.stop_words == (("the", 3), ("and", 2))
    assert found.stop_share == pytest.approx(5 / 8)
    assert found.lines == 1


@pytest.mark.parametrize("slope", [-0.5, -1.0, -1.5])
def test_the_slope_of_a_power_law_is_its_exponent(slope):
    curve = np.rint(1e7 * np.arange(1, 5000.0) ** slope).astype(int)
    assert zipf_slope(curve) == pytest.approx(slope, abs=0.01)


def test_too_few_words_have_no_slope():
    assert math.isnan(describe([["one"]]).grams[0].slope)


@pytest.mark.parametrize("text", ["", "one", "the cat sat on the mat " * 9 + "a bat hat"])
def test_pictures_of_any_text(text):
    grams = describe([[text]]).grams
    picture = ElementTree.fromstring(zipf_svg(grams, "Zipf's law in <this> & that"))
    assert picture.tag.endswith("svg")
    shown = zipf_text(grams)
    assert "rank" in shown
    assert all(len(line) < 90 for line in shown.splitlines())
    if len(text) > 10:
        assert {"1", "2"} <= set(shown)  # 3-grams are as frequent as 2-grams here
