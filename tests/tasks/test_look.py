"""What data are is told from a look at them; what is not clear is asked."""

import gzip
import json
import sys
import zipfile
from datetime import date, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from metarnn.tasks.classification import load as load_examples
from metarnn.tasks.forecasting import load as load_series
from metarnn.tasks.look import content, look
from metarnn.tasks.rows import csv_rows

DAYS = [f"2020-01-{d:02}" for d in range(1, 31)]
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
PAIRS = [f"{a} {b}\t{b} {a}" for a in WORDS for b in WORDS]


def table(head, rows):
    return "\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n"


FILES = {
    # a text
    "book.txt": ("lm", "It was a dark night.\nAnd so on.\n" * 9),
    "notes.md": ("lm", "# Notes\n\nSome text.\n"),
    "script": ("lm", "print('hello')\n"),
    "tabs.txt": ("lm", "a\tb\tc\nno tab here\n"),
    # pairs
    "pairs.tsv": ("translation", "\n".join(PAIRS)),
    "tatoeba.txt": ("translation", "\n".join(f"{p}\tCC-BY {k}" for k, p in enumerate(PAIRS))),
    "faq.csv": (
        "translation",
        "id,question,answer\n"
        + "\n".join(f"{k},{p}" for k, p in enumerate(PAIRS)).replace("\t", ","),
    ),
    "quoted.tsv": ("translation", "\n".join(f'"{p}' for p in PAIRS)),
    "three.tsv": ("translation", "\n".join(f"{p}\t0.{k}" for k, p in enumerate(PAIRS))),
    "st.jsonl": ("translation", "\n".join('{"source": "a", "target": "b"}' for _ in range(3))),
    "keys.jsonl": ("translation", '{"de": "eins", "en": "one"}\n'),
    "nested.jsonl": ("translation", '{"translation": {"de": "eins", "en": "one"}}\n'),
    # labelled sequences
    "waves.ts": ("classification", "@problemName w\n@data\n1,2,3:up\n"),
    "lines.jsonl": ("classification", '{"x": [1, 2, 3], "label": "up"}\n'),
    "tags.jsonl": ("classification", '{"text": "abc", "tags": ["x", "y", "x"]}\n'),
    "topics.tsv": ("classification", "\n".join(f"{'ab'[k % 2]}\ttext {k}" for k in range(40))),
    "topics.txt": ("classification", "\n".join(f"{'ab'[k % 2]}\ttext {k}" for k in range(40))),
    "texts.csv": ("classification", table("text,label", [(f"t {k}", k % 2) for k in range(9)])),
    "reviews.csv": (
        "classification",
        table("review,stars", [(f"it was so {k}", k % 2) for k in range(40)]),
    ),
    "Ucr_TRAIN.tsv": ("classification", "".join(f"{k % 3}\t1.5\t{k}.25\t0.5\n" for k in range(30))),
    "rows.csv": (
        "classification",
        table("a,b,c,label", [(k, 1, 2, "xy"[k % 2]) for k in range(9)]),
    ),
    "last.csv": ("classification", table("a,b,c,d", [(k, 1.5, 2, k % 3) for k in range(9)])),
    "steps.csv": (
        "classification",
        table("id,time,value,label", [(k // 5, k % 5, k, "xy"[k // 5 % 2]) for k in range(50)]),
    ),
    # series
    "sales.csv": ("forecasting", table("date,sales", [(d, k) for k, d in enumerate(DAYS)])),
    "years.csv": ("forecasting", table("year,level", [(1900 + k, k * 1.5) for k in range(30)])),
    "y.csv": ("forecasting", table("ds,y", [(d, 1.5 * k) for k, d in enumerate(DAYS)])),
    "german.csv": (
        "forecasting",
        "\ufeffTag;Umsatz\n" + "".join(f"{d}.01.2020;{d},5\n" for d in range(1, 31)),
    ),
    "american.csv": (
        "forecasting",
        table("day,sales", [(f"01/{d}/2020", 1.5 * d) for d in range(1, 31)]),
    ),
    "newest.csv": (
        "forecasting",
        table("Date,Rise", [(f'"Jan {d:02}, 2020"', d % 3) for d in range(30, 0, -1)]),
    ),
    "tabbed.tsv": ("forecasting", "date\tsales\n" + "".join(f"{d}\t1.5\n" for d in DAYS)),
    "columns.csv": ("forecasting", table("a,b", [(k * 1.5, k * 2.5) for k in range(30)])),
}


@pytest.mark.parametrize("name", FILES)
def test_each_kind_of_file_is_known_by_its_content(name, tmp_path):
    task, content = FILES[name]
    (tmp_path / name).write_text(content)
    found = look(str(tmp_path / name))
    assert found.task == task
    assert str(tmp_path / name) in found.about[0]


def test_packed_files_are_looked_into(tmp_path):
    with gzip.open(tmp_path / "pairs.tsv.gz", "wt") as file:
        file.write("\n".join(PAIRS))
    assert look(str(tmp_path / "pairs.tsv.gz")).task == "translation"


def test_arrays_are_labelled_sequences(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.zeros((4, 5)), y=np.arange(4))
    assert look(str(tmp_path / "data.npz")).task == "classification"


def test_keys_of_pairs_become_settings(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"de": "eins", "en": "one"}))
    assert look(str(tmp_path / "a.jsonl")).settings == {"source": "de", "target": "en"}


@pytest.mark.parametrize("given", ["news", "news.en"])
def test_two_files_with_as_many_lines_are_pairs(given, tmp_path):
    (tmp_path / "news.de").write_text("eins\nzwei\n")
    (tmp_path / "news.en").write_text("one\ntwo\n")
    found = look(str(tmp_path / given))
    first, second = ("en", "de") if given.endswith(".en") else ("de", "en")
    assert (found.task, found.data) == ("translation", str(tmp_path / "news"))
    assert found.settings == {"source": first, "target": second}
    (tmp_path / "news.en").write_text("one\ntwo\nthree\n")
    assert look(str(tmp_path / "news.de")).task == "lm"


def test_a_folder_of_aligned_splits_is_read_whole(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.de").write_text("eins\n")
        (tmp_path / f"{split}.en").write_text("one\n")
    found = look(str(tmp_path))
    assert (found.task, found.data) == ("translation", str(tmp_path))


def test_series_below_one_another_are_told_apart(tmp_path):
    rows = [(d, shop, "big", k) for shop in ("a", "b") for k, d in enumerate(DAYS)]
    (tmp_path / "shops.csv").write_text(table("date,shop,kind,sales", rows))
    found = look(str(tmp_path / "shops.csv"))
    assert found.task == "forecasting"
    assert found.settings == {"series": "shop", "static": ("kind",), "targets": ("sales",)}


def test_words_that_say_nothing_of_a_series_are_left_out_and_named(tmp_path):
    rows = [(d, k, f"note {k}") for k, d in enumerate(DAYS)]
    (tmp_path / "s.csv").write_text(table("date,sales,remark", rows))
    found = look(str(tmp_path / "s.csv"))
    assert found.settings == {"targets": ("sales",)}
    assert any("remark" in line for line in found.about)


def test_a_folder_of_images_is_classes(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.pgm").write_bytes(b"P5 1 1 255 0")
    assert look(str(tmp_path)).task == "classification"


def test_folders_of_texts_could_be_classes_or_one_text(tmp_path):
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").write_text("text")
    with pytest.raises(ValueError, match=r"--task classification .* --task lm"):
        look(str(tmp_path))
    assert look(str(tmp_path), "lm").task == "lm"
    assert look(str(tmp_path), "classification").task == "classification"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "empty"),
        ("noise.bin", bytes(range(256)) * 4, "no text"),
        ("broken.jsonl", b"{", "line 1: this is no JSON"),
        ("list.jsonl", b"[1]\n", "expected an object"),
        ("odd.jsonl", b'{"a": 1}\n', "Name the keys"),
        ("twice.csv", b"date,a\n2020-01-01,1\n2020-01-01,2\n", "come more than once"),
        ("latin.txt", "Käse und Öl\n".encode("latin-1") * 9, "iconv"),
        ("plain.csv", b"1,2,3,0\n4,5,6,1\n", "no header"),
        ("ragged.csv", b"a,b\n1,2\n1\n", "line 3: 1 fields, but the header has 2"),
    ],
)
def test_what_cannot_be_told_is_said_in_a_sentence(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        look(str(tmp_path / name))


def test_small_counts_over_time_could_be_classes(tmp_path):
    rows = [(shop, d, k % 5) for shop in "ab" for k, d in enumerate(DAYS)]
    (tmp_path / "s.csv").write_text(table("id,date,y", rows))
    with pytest.raises(ValueError, match=r"--task classification .* --task forecasting"):
        look(str(tmp_path / "s.csv"))
    assert look(str(tmp_path / "s.csv"), "forecasting").settings["series"] == "id"


def test_what_is_not_there_is_said_with_what_is():
    with pytest.raises(FileNotFoundError, match="pydoc"):
        look("no/such/file.txt")


@pytest.mark.parametrize(
    ("data", "task"),
    [("pydoc", "lm"), ("dates", "translation"), ("digits", "classification"), ("hf:x", "lm")],
)
def test_embedded_data_are_known(data, task):
    assert look(data).task == task


def test_lines_of_a_table_that_have_more_fields_than_others_are_cut(tmp_path):
    (tmp_path / "pairs.tsv").write_text("guten Tag\tgood day\tsure\n" + "ja\tyes\nnein\tno\tx\ty\n")
    assert look(str(tmp_path / "pairs.tsv")).task == "translation"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_however_they_end(end, tmp_path):
    (tmp_path / "a.txt").write_bytes(end.join(["\ufeffone", "two", "", "three"]).encode())
    assert content.lines(tmp_path / "a.txt") == ["one", "two", "", "three"]
    assert content.count(tmp_path / "a.txt") == 4


def test_a_text_of_one_endless_line_is_looked_at_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(content, "LONGEST", 1 << 20)
    (tmp_path / "a.txt").write_text("é" * (3 << 20))
    assert len(content.lines(tmp_path / "a.txt")[0]) < 2 << 20
    assert look(str(tmp_path / "a.txt")).task == "lm"


def test_numbers_of_classes_may_be_missing(tmp_path):
    rows = "".join(f"{k}.5,{k},3,{'na' if k == 5 else k % 2}\n" for k in range(20))
    (tmp_path / "a.csv").write_text("a,b,c,label\n" + rows)
    assert look(str(tmp_path / "a.csv")).task == "classification"


def test_a_folder_of_texts_is_one_text_and_others_are_told_apart(tmp_path):
    with pytest.raises(ValueError, match="is an empty folder"):
        look(str(tmp_path))
    for name in ("one", "two"):
        (tmp_path / f"{name}.md").write_text("Words of a book.\n" * 50)
    assert look(str(tmp_path)).task == "lm"
    assert look(str(tmp_path / "*.md")).task == "lm"
    (tmp_path / "two.bin").write_bytes(bytes(range(256)))
    with pytest.raises(ValueError, match=r"two\.bin is no text"):
        look(str(tmp_path))


@pytest.mark.parametrize(("ending", "advice"), [("mat", "loadmat"), ("zip", "is damaged")])
def test_formats_that_are_not_read_say_how_to_convert_them(ending, advice, tmp_path):
    path = tmp_path / f"data.{ending}"
    path.write_bytes(b"PK\0\0")
    with pytest.raises(ValueError, match=advice):
        look(str(path))
    with pytest.raises(ValueError, match=advice):
        load_examples(str(path))


TABLE = "day,sold\n" + "".join(f"2020-01-{k:02},{k % 7}\n" for k in range(1, 29))


def test_a_zipped_table_is_that_table(tmp_path):
    (tmp_path / "sold.csv").write_text(TABLE)
    with zipfile.ZipFile(tmp_path / "sold.zip", "w") as archive:
        archive.write(tmp_path / "sold.csv", "folder/sold.csv")
    plain, packed = (look(str(tmp_path / f"sold.{kind}")) for kind in ("csv", "zip"))
    assert (packed.task, packed.settings) == (plain.task, plain.settings) == ("forecasting", {})
    rows = [csv_rows(tmp_path / f"sold.{kind}") for kind in ("csv", "zip")]
    assert rows[0] == rows[1]
    with zipfile.ZipFile(tmp_path / "sold.zip", "a") as archive:
        archive.writestr("more.txt", "more")
    with pytest.raises(ValueError, match=r"sold\.csv, more\.txt: expected one .csv. Unpack it"):
        look(str(tmp_path / "sold.zip"))


class Parquet:
    """Stands for pyarrow: a "parquet" file of it holds a CSV."""

    class ArrowException(Exception):
        pass

    class parquet:
        class ParquetFile:
            def __init__(self, file):
                self.text = file.read()
                group = SimpleNamespace(total_byte_size=len(self.text))
                self.metadata = SimpleNamespace(num_row_groups=1, row_group=lambda k: group)

            def read(self):
                return self.text

    class csv:
        @staticmethod
        def write_csv(table, out):
            out.write(table)


def test_parquet_is_read_by_pyarrow_or_says_that_it_is_missing(tmp_path, monkeypatch):
    path = tmp_path / "sold.parquet"
    path.write_text(TABLE)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pyarrow"):
        look(str(path))
    for name in ("pyarrow", "pyarrow.csv", "pyarrow.parquet"):
        part = getattr(Parquet, name.rpartition(".")[2], Parquet)
        monkeypatch.setitem(sys.modules, name, part)
    assert look(str(path)).task == "forecasting"
    assert csv_rows(path)[1] == ["2020-01-01", "1"]


def test_real_parquet_is_a_table(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    days = [date(2020, 1, 1) + timedelta(k) for k in range(40)]
    table = pyarrow.table({"day": days, "sold": [k % 7 for k in range(40)]})
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(table, tmp_path / "sold.parquet")
    assert look(str(tmp_path / "sold.parquet")).task == "forecasting"
    assert csv_rows(tmp_path / "sold.parquet")[1] == ["2020-01-01", "0"]


@pytest.mark.parametrize("read", [look, load_series, load_examples])
def test_mixed_separators_are_reported_with_their_line(read, tmp_path):
    path = tmp_path / "sold.csv"
    path.write_text(TABLE + "\n2020-01-30;4\n")
    with pytest.raises(ValueError, match=r"line 31: 1 fields.* has ';' between fields"):
        read(str(path))
