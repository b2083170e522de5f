import pytest
import torch

from metarnn.hyper import Text
from metarnn.tasks.language import ModelOptions, Vocabulary, build_model
from metarnn.tasks.language.embed import TextEmbedding

VOCABULARY = Vocabulary.build([["abc ab"]])


def model(size=0):
    return build_model(size or len(VOCABULARY), ModelOptions(width=6, embedding=4))


def test_a_text_means_the_same_alone_and_in_company():
    encode = TextEmbedding(model(), VOCABULARY)
    texts = ["abc", "ca b"]
    together = encode(texts)
    assert together.shape == (2, encode.width) == (2, 6)
    torch.testing.assert_close(encode(texts[1:])[0], together[1])
    assert not torch.equal(together[0], together[1])


def test_a_language_model_describes_tasks():
    about = Text(TextEmbedding(model(), VOCABULARY))
    assert about(["abc", "ab"]).shape == (2, 6)
    assert list(about.parameters()) == []


def test_a_vocabulary_of_another_model_is_refused():
    with pytest.raises(ValueError, match="those of the model"):
        TextEmbedding(model(50), VOCABULARY)
