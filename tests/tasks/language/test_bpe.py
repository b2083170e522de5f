import pytest

from metarnn.tasks.language import Vocabulary

pytest.importorskip("tokenizers")

TEXT = "the cat sat on the mat, the cat sat\n" * 20 + "Ünïcödé 漢字\n\n\tdef f(x):\n    pass\n"


def test_any_text_comes_back_and_frequent_pieces_are_whole(tmp_path):
    vocabulary = Vocabulary.build([[TEXT]], "bpe", max_size=300)
    assert len(vocabulary) <= 300
    for text in (TEXT, "never seen: ½ 🙂"):
        assert vocabulary.decode(vocabulary.encode(text)) == text
    assert len(vocabulary.encode("the cat")) < 4
    vocabulary.save(tmp_path / "v.json")
    again = Vocabulary.load(tmp_path / "v.json")
    assert again == vocabulary
    assert again.encode(TEXT).tolist() == vocabulary.encode(TEXT).tolist()


def test_a_tokenizer_that_is_none_is_refused():
    for tokenizer in (None, "{}", 5):
        with pytest.raises(ValueError, match="tokenizer"):
            Vocabulary.from_document(
                {"format": "metarnn vocabulary", "level": "bpe", "tokenizer": tokenizer}
            )
