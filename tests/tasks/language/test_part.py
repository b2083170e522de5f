"""A training text cut in two loses and shares nothing."""

import numpy as np
import pytest

from metarnn.tasks.language import load
from metarnn.tasks.language.part import MOST, parted


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_two_parts_are_the_whole_and_a_cut_between_documents_is_at_one(share):
    corpus = load("pydoc")
    first, second = parted(corpus, share)
    whole = corpus["train"]
    begin, end = first["train"], second["train"]
    joined = np.concatenate([begin.tokens.values, end.tokens.values])
    assert (joined == whole.tokens.values).all()
    assert len(end.tokens) == pytest.approx(share * len(joined), rel=0.25)
    assert begin.names + end.names == whole.names
    assert set(np.concatenate([begin.tokens.bounds, end.tokens.bounds + len(begin.tokens)])) == set(
        whole.tokens.bounds
    )
    scored = first["valid"].tokens.values
    assert (scored == end.tokens.values[:MOST]).all()
    assert second["valid"] is corpus["valid"]


def test_a_text_of_one_document_is_cut_in_its_middle(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("".join(chr(97 + k % 26) for k in range(1000)))
    corpus = load(str(file), split="90/10")
    first, second = parted(corpus, 0.25)
    assert len(first["train"].tokens) == 675
    assert len(second["train"].tokens) == 225
    assert first["train"].tokens.bounds.tolist() == [0, 675]
    assert second["train"].tokens.bounds.tolist() == [0, 225]
    assert (
        second["train"].tokens.read(0, 3).tolist() == corpus["train"].tokens.read(675, 3).tolist()
    )


@pytest.mark.parametrize("share", [0, 1, 1.5])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        parted(load("pydoc"), share)
