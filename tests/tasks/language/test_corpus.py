import io
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest

from metarnn.tasks.language import EOS, Vocabulary, load
from metarnn.tasks.language import corpus as module
from metarnn.tasks.language.source import (
    Document,
    embedded,
    find_files,
    from_text,
    without_repeats,
)
from metarnn.tasks.language.split import Shares, deal

WORDS = "the quick brown fox jumps over a lazy dog and comes back again\n"


def text_of(corpus, split):
    tokens = corpus[split].tokens
    return corpus.vocabulary.decode(tokens.read(0, len(tokens)))


def test_one_file_is_cut_into_stretches_that_join_to_the_whole(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("Größe und Maß, 漢字かな交じり文。" * 50, encoding="utf-8")
    for split in ("90/5/5", "90/10", "1/1/1"):
        corpus = load(str(path), split=split)
        assert len(corpus.splits) == split.count("/") + 1
        shares = Shares.parse(split).shares
        whole = "".join(text_of(corpus, s) for s in corpus.splits).replace("<unk>", "?")
        assert len(whole) == len(path.read_text(encoding="utf-8"))
        assert corpus["valid"].unknown == 0
        size = len(text_of(corpus, "valid")) / len(whole)
        assert size == pytest.approx(shares["valid"], abs=0.01)


def test_ninety_ten_of_a_text_is_where_everybody_cuts_it(tmp_path):
    text = (WORDS * 999)[:50_003]
    (tmp_path / "t.txt").write_text(text)
    corpus = load(str(tmp_path / "t.txt"), split="90/10")
    assert text_of(corpus, "train") == text[: int(0.9 * len(text))]
    assert text_of(corpus, "valid") == text[int(0.9 * len(text)) :]


@pytest.fixture
def three(tmp_path):
    for name, text in {"train": "aab\n" * 9, "valid": "ab\n", "test": "abc\n"}.items():
        (tmp_path / f"ptb.char.{name}.txt").write_text(text)
        (tmp_path / f"ptb.{name}.txt").write_text(text.upper())
    return tmp_path


def test_names_of_files_tell_their_splits(three):
    for data in ("ptb.char.train.txt", "ptb.char.*.txt"):
        corpus = load(str(three / data))
        assert [text_of(corpus, split) for split in ("valid", "test")] == ["ab\n", "ab<unk>\n"]
        assert corpus["test"].unknown == 1


def test_a_folder_of_two_texts_with_splits_is_ambiguous(three):
    with pytest.raises(ValueError, match=r"ptb\.\*\.txt.*name one by its training file"):
        load(str(three))


def test_a_folder_of_splits(tmp_path):
    for split in ("train", "dev"):
        (tmp_path / split).mkdir()
        for k in range(3):
            (tmp_path / split / f"{k}.txt").write_text(f"{split} {k}")
    corpus = load(str(tmp_path))
    assert list(corpus.splits) == ["train", "valid"]
    assert corpus["valid"].names == ("dev/0.txt", "dev/1.txt", "dev/2.txt")
    assert text_of(corpus, "train") == "train 0train 1train 2"


def test_where_only_a_test_is_beside_it_valid_is_taken_from_train(tmp_path):
    (tmp_path / "x-train.txt").write_text("ab" * 500)
    (tmp_path / "x-test.txt").write_text("abba")
    (tmp_path / "notes.md").write_text("z" * 99)
    corpus = load(str(tmp_path / "x-train.txt"))
    assert [len(text_of(corpus, split)) for split in ("train", "valid", "test")] == [950, 50, 4]


def test_a_training_file_without_siblings_is_a_file(tmp_path):
    (tmp_path / "my-train.txt").write_text("ab" * 500)
    (tmp_path / "other-test.txt").write_text("zzz")
    assert set(text_of(load(str(tmp_path / "my-train.txt")), "test")) == {"a", "b"}


def test_documents_are_dealt_out_whole_by_name_and_seed(tmp_path):
    documents = [from_text(f"d{k}", "x" * (10 + k % 7)) for k in range(200)]
    first, again = (deal(documents, Shares.parse("80/10/10"), 0) for _ in range(2))
    other = deal(documents, Shares.parse("80/10/10"), 1)
    names = {split: [d.name for d in found] for split, found in first.items()}
    assert names == {split: [d.name for d in found] for split, found in again.items()}
    assert names != {split: [d.name for d in found] for split, found in other.items()}
    assert sorted(chain(*names.values())) == sorted(d.name for d in documents)
    sizes = {split: sum(d.size for d in found) for split, found in first.items()}
    assert sizes["test"] / sum(sizes.values()) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("name", ["pydoc", "stdlib"])
def test_embedded_texts_are_there_and_are_text(name):
    documents = embedded(name)
    assert len(documents) > 50
    assert all(len("".join(d.text()).encode()) == d.size for d in documents[:60])


def test_what_texts_repeat_is_kept_where_it_comes_first():
    long = "a paragraph that is longer than a heading\nand has two lines"
    texts = {
        "a": f"A\n\n{long}\n\n" + "x" * 200,
        "b": f"B\n\n{long.replace(chr(10), ' ')}\n\n" + "y" * 200 + "\n\nA",
        "c": f"C\n\n{long}",
    }
    found = without_repeats(texts)
    assert found == {"a": texts["a"], "b": "B\n\n" + "y" * 200 + "\n\nA"}


def test_no_topic_of_the_embedded_text_is_in_two_splits():
    corpus = load("pydoc")
    names = [set(corpus[split].names) for split in corpus.splits]
    assert sum(map(len, names)) == len(set.union(*names))


def test_standard_input(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((WORDS * 20).encode())))
    corpus = load("-")
    assert "".join(text_of(corpus, split) for split in corpus.splits) == WORDS * 20


def test_so_many_lines_make_a_document(tmp_path):
    lines = [f"{'é' * k} {k}\n" for k in range(7)]
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("".join(lines) + "end")
    corpus = load(str(tmp_path / "train.txt"), lines=3)
    whole = load(str(tmp_path / "train.txt"))
    tokens = corpus["train"].tokens
    assert np.array_equal(tokens.values, whole["train"].tokens.values)
    sizes = [len("".join(lines[:3])), len("".join(lines[3:6])), len(lines[6] + "end")]
    assert np.diff(tokens.bounds).tolist() == sizes
    assert corpus["train"].names[1].endswith("from line 4")


def test_words_and_ends_of_lines(tmp_path):
    (tmp_path / "a.train.txt").write_text(" no it was n't \n black monday \n")
    (tmp_path / "a.valid.txt").write_text(" no it is \n")
    corpus = load(str(tmp_path / "a.train.txt"), "word")
    assert len(corpus["train"].tokens) == 8
    assert (corpus["train"].tokens.read(0, 8) == EOS).sum() == 2
    assert text_of(corpus, "valid") == "no it <unk>\n"


REFUSED = {
    "is empty": b"",
    "is no text: byte 0xff at 3": b"abc\xff\xfe" * 50,
    "it has zero bytes": b"abc\0" * 50,
    "it ends within a character": b"abc" * 50 + b"\xe6",
    "too few to split": b"a",
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_no_text_is_refused_with_the_reason(why, tmp_path):
    path = tmp_path / "file.txt"
    path.write_bytes(REFUSED[why])
    with pytest.raises(ValueError, match=why):
        load(str(path))


def test_bytes_of_any_file_can_be_read(tmp_path):
    content = bytes(range(256)) * 20
    (tmp_path / "file.bin").write_bytes(content)
    corpus = load(str(tmp_path / "file.bin"), "byte")
    assert sum(len(split.tokens) for split in corpus.splits.values()) == len(content)


@pytest.mark.parametrize("data", ["nothing.txt", "nowhere/*.txt"])
def test_what_is_not_there_is_refused_with_what_could_be(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no such file.*pydoc, stdlib.*hf:NAME"):
        load(data)


def test_a_dataset_needs_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        load("hf:wikitext")


def test_a_dataset_with_splits(monkeypatch):
    class Column(NamedTuple):
        dtype: str

    class Rows(list):
        features = MappingProxyType({"id": Column("int64"), "text": Column("string")})

    def load_dataset(name, configuration):
        assert (name, configuration) == ("wiki", "small")
        splits = {"train": ["one two", "two\n", ""], "validation": ["two"], "test": ["three"]}
        return {split: Rows({"text": line} for line in lines) for split, lines in splits.items()}

    fake = type(sys)("datasets")
    fake.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", fake)
    corpus = load("hf:wiki:small", "word")
    assert text_of(corpus, "train") == "one two\ntwo\n\n"
    assert text_of(corpus, "test") == "<unk>\n"


def test_no_more_is_evaluated_of_a_large_text_than_tells_its_loss():
    sizes = Shares.parse("auto").of(10**9)
    assert sizes == {"train": 10**9 - 2 * 2**20, "valid": 2**20, "test": 2**20}
    assert Shares.parse("auto").of(1000) == Shares.parse("90/5/5").of(1000)


@pytest.mark.parametrize("shares", ["90", "a/b", "90/10/5/5", "0/1", "-1/2", ""])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(ValueError, match="90/5/5"):
        Shares.parse(shares)


@pytest.fixture
def large(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for k in range(40):
        (folder / f"{k}.txt").write_text(WORDS * (k + 1))
    return folder


@pytest.mark.parametrize("level", ["character", "byte", "word"])
def test_a_text_kept_on_disk_is_the_same_as_in_memory(level, large, tmp_path):
    memory = load(str(large), level)
    for _ in range(2):  # built, then found
        disk = load(str(large), level, cache=tmp_path / "cache", in_memory=0)
        assert disk.vocabulary == memory.vocabulary
        for split in memory.splits:
            a, b = memory[split], disk[split]
            assert (a.names, a.unknown) == (b.names, b.unknown)
            assert a.tokens.bounds.tolist() == b.tokens.bounds.tolist()
            assert a.tokens.values.tolist() == b.tokens.values.tolist()
    assert len(list((tmp_path / "cache" / "corpora").iterdir())) == 1


def test_what_is_kept_follows_the_content(large, tmp_path, monkeypatch):
    options = {"cache": tmp_path / "cache", "in_memory": 0}
    before = load(str(large), **options)
    (large / "39.txt").write_text("§" * 2000)  # too large to be dealt to the test
    after = load(str(large), **options)
    assert before["train"].tokens.values.tolist() != after["train"].tokens.values.tolist()
    assert len(list((tmp_path / "cache" / "corpora").iterdir())) == 2
    monkeypatch.setattr(module, "_build", None)  # a third reading builds nothing
    load(str(large), **options)


def test_a_full_disk_leaves_nothing_behind_and_is_told(large, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Vocabulary, "save", full)
    with pytest.raises(OSError, match=r"No space left on device.*METARNN_CACHE"):
        load(str(large), cache=tmp_path / "cache", in_memory=0)
    assert list((tmp_path / "cache" / "corpora").iterdir()) == []


def test_a_damaged_file_is_not_read(large, tmp_path):
    load(str(large), cache=tmp_path, in_memory=0)
    (path,) = tmp_path.glob("corpora/*/train.bin")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="damaged"):
        load(str(large), cache=tmp_path, in_memory=0)


MEASURE = """
import sys
from metarnn.tasks.language import load, LanguageTask, score
from metarnn.tasks.task import Shard
corpus = load(sys.argv[1], sys.argv[2], cache=sys.argv[3], in_memory=0)
batches = LanguageTask(corpus, batch=32, length=4096).batches(Shard())
for _ in range(60): next(batches)
# Not ru_maxrss, which a child inherits from the process that started it.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.medium
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the peak memory")
@pytest.mark.parametrize("level", ["character", pytest.param("word", marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_text(level, tmp_path):
    resident = []
    for megabytes in (4, 40):
        path = tmp_path / f"{megabytes}.txt"
        path.write_text(WORDS * (megabytes * (1 << 20) // len(WORDS)))
        command = [sys.executable, "-c", MEASURE, str(path), level, str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
        found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        resident.append(int(found.stdout))
    assert resident[1] < 1.1 * resident[0]


def test_a_document_that_shrinks_while_it_is_read_is_noticed():
    with pytest.raises(OSError, match="became shorter"):
        list(Document("d", lambda: io.BytesIO(b"abc"), 5).bytes())


def test_links_to_folders_are_not_followed_even_in_circles(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("one", "two"):
        (tmp_path / "a" / name).symlink_to(tmp_path)
    (tmp_path / "a" / "b" / "text.txt").write_text("words")
    (tmp_path / "a" / ".hidden.txt").write_text("none")
    expected = [tmp_path / "a" / "b" / "text.txt"]
    for data in (tmp_path, tmp_path / "**" / "*", tmp_path / "**" / "*.txt", tmp_path / "a/b/t*"):
        assert find_files(str(data))[1] == expected
    with pytest.raises(FileNotFoundError, match="no such file"):
        find_files(str(tmp_path / "**text"))
