import math
import sys
import tracemalloc
from itertools import islice

import pytest
import torch

from metarnn.decoding import Search
from metarnn.tasks.language import BOS, ModelOptions, Vocabulary, build_model, generate
from metarnn.tasks.language.generate import continuations

TEXT = "the cat sat on the mat. " * 3


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.build([[TEXT]])


@pytest.fixture(scope="module")
def model(vocabulary):
    torch.manual_seed(1)
    found = build_model(len(vocabulary), ModelOptions(cell="gru", width=24, embedding=8))
    with torch.no_grad():
        for p in found.parameters():
            p.mul_(3)  # far from uniform
    return found


def test_a_seed_decides_the_text(model, vocabulary):
    texts = ["".join(generate(model, vocabulary, "the", 60, seed=seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert len(texts[0]) == 60
    assert "<" not in "".join(texts)  # no special token is drawn


def test_greedy_takes_the_most_probable_token_after_all_that_was_read(model, vocabulary):
    found = "".join(generate(model, vocabulary, "the cat", 20, temperature=0))
    assert found == "".join(generate(model, vocabulary, "the cat", 20, top_k=1, seed=3))
    tokens = [BOS, *vocabulary.encode("the cat").tolist()]
    model.eval()
    for character in found:
        nll = model(torch.tensor(tokens).unsqueeze(1)).nll[-1, 0]
        nll[:4] = math.inf
        assert int(nll.argmin()) == vocabulary.numbers[character]
        tokens.append(vocabulary.numbers[character])


def test_a_long_prompt_is_read_in_chunks_to_the_same_end(model, vocabulary, monkeypatch):
    prompt = TEXT * 10
    whole = "".join(generate(model, vocabulary, prompt, 30, seed=0))
    monkeypatch.setattr(sys.modules[generate.__module__], "CHUNK", 7)
    assert "".join(generate(model, vocabulary, prompt, 30, seed=0)) == whole


def test_text_without_end_takes_no_memory(model, vocabulary):
    stream = generate(model, vocabulary, "", None, seed=0)
    for _ in islice(stream, 100):
        pass
    tracemalloc.start()
    for _ in islice(stream, 1000):
        pass
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 20_000


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", -1), ("temperature", math.nan), ("top_k", -1), ("top_p", 0), ("top_p", 1.5)],
)
def test_a_bad_option_is_refused_before_anything_is_drawn(model, vocabulary, name, value):
    with pytest.raises(ValueError, match=f"{name}="):
        generate(model, vocabulary, "", 5, **{name: value})


def test_words_are_parted_and_lines_end():
    vocabulary = Vocabulary.build([["a b\nc\n"]], "word")
    model = build_model(len(vocabulary), ModelOptions(width=8, embedding=4))
    text = "".join(generate(model, vocabulary, "a", 40, seed=0))
    assert set(text.split()) <= {"a", "b", "c"}
    assert "\n" in text


def test_a_beam_finds_texts_that_are_more_probable_than_the_greedy_one(model, vocabulary):
    def log_p(text):
        tokens = torch.tensor([BOS, *vocabulary.encode("the" + text).tolist()]).unsqueeze(1)
        return -float(model.eval()(tokens[:-1], tokens[1:]).nll[3:].sum().detach())

    found = continuations(model, vocabulary, "the", 12, Search(width=20, nbest=3))
    assert [len(text) for text, _ in found] == [12, 12, 12]
    greedy = "".join(generate(model, vocabulary, "the", 12, temperature=0))
    assert continuations(model, vocabulary, "the", 12, Search())[0][0] == greedy
    assert log_p(found[0][0]) >= log_p(greedy)
    for text, score in found:
        assert score == pytest.approx(log_p(text), abs=1e-4)
