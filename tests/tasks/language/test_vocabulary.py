import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metarnn.tasks.language import BOS, EOS, PAD, UNK, Vocabulary
from metarnn.tasks.language import vocabulary as module
from metarnn.tasks.language.vocabulary import SPECIAL

# What a file of text can hold: anything but surrogates.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def pieces(text, cuts):
    """A text cut at places, as it arrives from a file."""
    cuts = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(cuts)]


@given(TEXT)
def test_a_text_of_known_characters_or_bytes_comes_back(text):
    for level in ("character", "byte"):
        vocabulary = Vocabulary.build([[text]], level)
        assert vocabulary.decode(vocabulary.encode(text)) == text


@given(st.lists(st.sampled_from(["a", "bc", "\n", "d'e"]), max_size=30), st.lists(st.integers(0)))
def test_words_come_back_and_do_not_depend_on_where_the_text_is_cut(words, cuts):
    text = " ".join(words)
    vocabulary = Vocabulary.build([pieces(text, cuts)], "word")
    whole = vocabulary.encode(text)
    found = np.concatenate([*vocabulary.stream(pieces(text, cuts)), np.zeros(0, int)])
    assert found.tolist() == whole.tolist()
    assert vocabulary.decode(whole).split() == [word for word in words if word != "\n"]
    assert (whole == EOS).sum() == words.count("\n")


@given(TEXT)
def test_tokens_are_ranked_by_how_often_they_occur(text):
    counts = Counter(text)
    tokens = Vocabulary.build([[text]]).tokens
    assert tokens[:4] == SPECIAL
    assert [counts[token] for token in tokens[4:]] == sorted(counts.values(), reverse=True)


def test_special_tokens_have_fixed_numbers():
    assert [SPECIAL[number] for number in (UNK, PAD, BOS, EOS)] == list(SPECIAL)


def test_rare_tokens_and_those_beyond_the_limit_are_unknown():
    text = "aaaabbbccd"
    assert Vocabulary.build([[text]], min_frequency=3).tokens[4:] == ("a", "b")
    small = Vocabulary.build([[text]], max_size=5)
    assert small.tokens[4:] == ("a",)
    assert small.encode("ab漢").tolist() == [4, UNK, UNK]


def test_a_text_of_one_character_has_a_vocabulary():
    vocabulary = Vocabulary.build([["aaaa"]])
    assert len(vocabulary) == 5
    assert vocabulary.decode(vocabulary.encode("aa")) == "aa"


def test_unknown_words_of_a_prepared_text_are_unknown():
    vocabulary = Vocabulary.build([["<unk> is <unk>\n"]], "word")
    assert vocabulary.encode("<unk> is\n").tolist() == [UNK, 4, EOS]


def test_counting_words_takes_bounded_memory_and_keeps_the_frequent(monkeypatch):
    monkeypatch.setattr(module, "COUNTED", 100)
    rare = [f"rare{k} common the the " for k in range(2000)]
    vocabulary = Vocabulary.build([rare], "word")
    assert vocabulary.tokens[4:6] == ("the", "common")
    assert len(vocabulary) < 200


def test_bytes_of_one_character_come_out_together():
    vocabulary = Vocabulary.build([[b"x"]], "byte")
    assert len(vocabulary) == 4 + 256
    assert [piece for piece in vocabulary.pieces(vocabulary.encode("é!")) if piece] == ["é", "!"]


@pytest.mark.parametrize("level", ["character", "byte", "word"])
def test_a_saved_vocabulary_is_the_same(level, tmp_path):
    vocabulary = Vocabulary.build([["the cat\nsat ünder <unk>\n"]], level)
    vocabulary.save(tmp_path / "v.json")
    again = Vocabulary.load(tmp_path / "v.json")
    assert again == vocabulary
    assert again.encode("a cat ü").tolist() == vocabulary.encode("a cat ü").tolist()


GOOD = {"format": "metarnn vocabulary", "level": "character", "tokens": [*SPECIAL, "a", "b"]}
HOSTILE = {
    "no JSON": "{",
    "nested too deep": "[" * 100_000,
    "another format": json.dumps({**GOOD, "format": "x"}),
    "a list": "[]",
    "an unknown level": json.dumps({**GOOD, "level": "eval"}),
    "tokens that are numbers": json.dumps({**GOOD, "tokens": [*SPECIAL, 7]}),
    "no tokens": json.dumps({**GOOD, "tokens": None}),
    "special tokens missing": json.dumps({**GOOD, "tokens": ["a", "b"]}),
    "a token twice": json.dumps({**GOOD, "tokens": [*SPECIAL, "a", "a"]}),
    "two characters as one": json.dumps({**GOOD, "tokens": [*SPECIAL, "ab"]}),
    "few bytes": json.dumps({**GOOD, "level": "byte"}),
    "a word with a space": json.dumps({**GOOD, "level": "word", "tokens": [*SPECIAL, "a b"]}),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_hostile_file_is_refused_by_its_name(why, tmp_path):
    path = tmp_path / "hostile.json"
    path.write_text(HOSTILE[why])
    with pytest.raises(ValueError, match=r"hostile\.json is no vocabulary"):
        Vocabulary.load(path)


def test_a_number_that_is_no_token_is_refused():
    with pytest.raises(ValueError, match="token=9: expected a number from 0 to 5"):
        Vocabulary("character", (*SPECIAL, "a", "b")).decode([9])
