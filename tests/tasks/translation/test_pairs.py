import gzip
import json
from datetime import date
from typing import Any

import pytest

from metarnn.tasks.language import UNK
from metarnn.tasks.translation import load
from metarnn.tasks.translation.generated import NOTATIONS, dates, in_words, numbers
from metarnn.tasks.translation.pairs import Pairs, read

DE = ["eins", "zwei drei", "", "vier", "  ", "fünf"]
EN = ["one", "two three", "nothing", "", "   ", "five"]


@pytest.fixture
def folder(tmp_path):
    for name in ("train", "val", "test2016"):
        (tmp_path / f"{name}.de").write_text("\n".join(DE) + "\n")
        (tmp_path / f"{name}.en.gz").write_bytes(gzip.compress("\n".join(EN).encode()))
    return tmp_path


def test_a_folder_of_aligned_files_is_split_by_their_names(folder):
    found = read(str(folder), "de", "en")
    assert list(found) == ["train", "valid", "test"]
    for pairs in found.values():
        assert pairs.source == ["eins", "zwei drei", "fünf"]
        assert pairs.target == ["one", "two three", "five"]
        assert pairs.empty == 3


def test_tables_hold_the_same_pairs_as_aligned_files(tmp_path):
    (tmp_path / "x.tsv").write_text("".join(f"{x}\t{y}\n" for x, y in zip(DE, EN, strict=True)))
    rows = [{"de": x, "en": y} for x, y in zip(DE, EN, strict=True)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    wrapped = (json.dumps({"translation": row}) + "\n" for row in rows)
    (tmp_path / "wrapped.jsonl").write_text("".join(wrapped))
    (tmp_path / "two.de").write_text("\r\n".join(DE) + "\r\n")
    (tmp_path / "two.en").write_text("\n".join(EN))
    first = read(str(tmp_path / "x.tsv"), split="all")["all"]
    assert first.source == ["eins", "zwei drei", "fünf"]
    for name in ("x.jsonl", "wrapped.jsonl", "two"):
        assert read(str(tmp_path / name), "de", "en", split="all")["all"] == first


def test_a_sentence_that_comes_twice_is_in_one_split(tmp_path):
    lines = [f"Satz {k % 300}\tsentence {k}\n" for k in range(900)]
    (tmp_path / "x.tsv").write_text("".join(lines))
    found = read(str(tmp_path / "x.tsv"), split="80/10/10")
    sides = [set(pairs.source) for pairs in found.values()]
    assert sum(map(len, sides)) == 300
    assert len(set.union(*sides)) == 300
    assert 200 < len(sides[0]) < 270
    assert sum(map(len, found.values())) == 900
    assert read(str(tmp_path / "x.tsv"), split="80/10/10") == found


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.de": "a\nb\n", "train.en": "a\n"}, "2 lines and .*train.en 1"),
        ({"train.de": "a\nb\n"}, "target='en'"),
        ({"train.de": b"a\n\xff\n", "train.en": "a\nb\n"}, "train.de, line 2: this is no UTF-8"),
        ({"train.de": "", "train.en": ""}, "train.de is empty"),
        ({"train.tsv": "a b\n"}, "train.tsv, line 1: expected .* tab"),
        ({"train.jsonl": '{"de": "a", "en": "b"}\n{"de": "a"}\n'}, "line 2: expected an object"),
        ({"train.jsonl": "{"}, "line 1 is not JSON"),
        ({"train.de.gz": b"no gzip", "train.en": "a\n"}, "is damaged"),
        ({"notes.txt": "a\n"}, "no pairs to train on"),
        (
            {f"{n}.{s}": "a\nb\n" for n in ("train", "test1", "test2") for s in ("de", "en")},
            "several files for test: test1.de, test2.de",
        ),
    ],
)
def test_what_is_wrong_with_data_is_said_with_its_place(files, message, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        read(str(tmp_path), "de", "en")


def test_columns_of_a_csv_are_pairs(tmp_path):
    file = tmp_path / "faq.csv"
    file.write_text('id,q,a\n1,"why, then?",so\n2,how,thus\n')
    assert read(str(file), "q", "a", "all")["all"] == Pairs(["why, then?", "how"], ["so", "thus"])
    with pytest.raises(ValueError, match="column='x'"):
        read(str(file), "q", "x", "all")


def test_more_columns_than_two_are_left_out(tmp_path):
    (tmp_path / "deu.txt").write_text("Go.\tGeh.\tCC-BY 2.0\n")
    found = read(str(tmp_path / "deu.txt"), split="all")["all"]
    assert (found.source, found.target) == (["Go."], ["Geh."])


def test_data_that_are_nowhere_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="generated: dates, numbers"):
        read(str(tmp_path / "nowhere"), "de", "en")
    (tmp_path / "x.doc").write_text("a")
    with pytest.raises(ValueError, match="data="):
        read(str(tmp_path / "x.doc"))


def test_long_pairs_leave_training_alone_and_all_is_counted(folder):
    corpus = load(str(folder), "character", source="de", target="en", longest=5)
    train, test = corpus["train"], corpus["test"]
    assert (len(train), train.long, train.empty) == (2, 1, 3)
    assert (len(test), test.long) == (3, 0)
    assert train.pairs.source == ["eins", "fünf"]
    # The vocabulary knows of all pairs; what it does not know is counted, and is <unk>.
    (folder / "test2016.de").write_text("\n".join(["qqs", *DE[1:]]))
    test = load(str(folder), "character", source="de", target="en")["test"]
    assert test.unknown == (2, 0)
    assert test.source[0].tolist()[:2] == [UNK, UNK]
    assert test.describe("test") == (
        "test: 3 pairs, 3 left out with an empty side, 2 unknown tokens in the source"
    )


def test_one_vocabulary_or_two(folder):
    options: dict[str, Any] = {"source": "de", "target": "en"}
    two = load(str(folder), "word", **options)
    assert "eins" in two.source.numbers
    assert "eins" not in two.target.numbers
    one = load(str(folder), "word", joint=True, **options)
    assert one.source is one.target
    assert {"eins", "one"} <= one.source.numbers.keys()


@pytest.mark.medium
def test_bpe_is_joint_or_separate(folder):
    pytest.importorskip("tokenizers")
    options: dict[str, Any] = {"source": "de", "target": "en", "max_size": 300}
    one = load(str(folder), "bpe", joint=True, **options)
    assert one.source is one.target
    for corpus in (one, load(str(folder), "bpe", lowercase=True, **options)):
        split = corpus["train"]
        for text, tokens in zip(split.pairs.target, split.target, strict=True):
            assert corpus.target.decode(tokens) == text


def test_no_date_of_a_test_was_seen_in_training_and_all_are_right():
    found = dates(seed=3)
    days = [{y for _, y in pairs} for pairs in found.values()]
    assert sum(map(len, days)) == len(set.union(*days)) == sum(map(len, found.values()))
    assert found == dates(seed=3) != dates(seed=4)
    for text, iso in found["test"]:
        assert text in {notation(date.fromisoformat(iso)) for notation in NOTATIONS}


def test_no_notation_is_ambiguous():
    seen: dict[str, date] = {}
    for year in (1999, 2011):
        for month in range(1, 13):
            for day in range(1, 29):
                this = date(year, month, day)
                for notation in NOTATIONS:
                    assert seen.setdefault(notation(this), this) == this


@pytest.mark.medium
def test_numbers_in_words_are_those_of_the_digits():
    found = numbers(seed=1)
    assert {len(digits) for _, digits in found["train"]} == set(range(1, 10))
    for text, digits in found["test"][:300]:
        assert text in (in_words(int(digits)), in_words(int(digits), joined=True))
        assert value(text) == int(digits)


def value(text):
    """Read the words, as somebody who does not know how they were made."""
    small = {in_words(n): n for n in range(100)}
    total = part = 0
    for word in text.replace(" and ", " ").split():
        if word in small:
            part += small[word]
        elif word == "hundred":
            part *= 100
        else:
            total, part = total + part * {"thousand": 10**3, "million": 10**6}[word], 0
    return total + part
