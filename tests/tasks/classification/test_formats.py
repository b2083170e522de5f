"""What is in a file is what is read."""

# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportAttributeAccessIssue=false

import json
import struct
import zlib

import numpy as np
import pytest

from metarnn.tasks.classification import find, formats, load
from metarnn.tasks.classification.images import read_image

TS = """#comment
@problemName Toy
@timeStamps false
@missing true
@univariate false
@dimension 2
@equalLength false
@classLabel true walk run
@data
1.0,2.0,?:4,5,6:walk
7:8:run
"""
TIMED = """@timestamps true
@classLabel true walk run
@data
(0,1):(0,2):walk
(0,1):run
"""


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def same(ours, theirs):
    np.testing.assert_array_equal(ours, np.array(theirs, np.float32))


def test_ts_with_dimensions_missing_values_and_lengths(tmp_path):
    kind, (first, second) = formats.read(write(tmp_path / "Toy.ts", TS))
    assert (kind, first.label, second.label) == ("one", "walk", "run")
    same(first.x, [[1, 4], [2, 5], [np.nan, 6]])
    same(second.x, [[7, 8]])


def test_ts_with_times(tmp_path):
    head = "@timestamps true\n@classLabel true a b\n@data\n"
    text = head + "(0,1.5),(2,2.5):(2,7):a\n(2020-01-01 00:00:00,1):(2020-01-01 00:01:00,2):b\n"
    _, (numbers, dates) = formats.read(write(tmp_path / "Toy.ts", text))
    same(numbers.x, [[1.5, np.nan], [2.5, 7]])
    assert numbers.times.tolist() == [0, 2]
    assert dates.times[1] - dates.times[0] == 60
    assert dates.label == "b"


def test_another_number_of_dimensions_is_named_with_its_line(tmp_path):
    for text, line in ((TS + "1:walk\n", 12), (TIMED, 5)):
        path = write(tmp_path / "Toy.ts", text)
        why = rf"Toy\.ts, line {line}: it has 1 dimension, and the first example has 2"
        with pytest.raises(ValueError, match=why):
            formats.read(path)


def test_too_few_examples_for_a_test_are_refused(tmp_path):
    path = write(tmp_path / "Toy.ts", TS)
    with pytest.raises(ValueError, match=r"Toy\.ts has 2 examples, too few"):
        load(str(path))


@pytest.mark.parametrize("line", ["1,x,3:walk", "(1,2:walk", "walk", "1:2:swim"])
def test_a_damaged_line_is_named(line, tmp_path):
    path = write(tmp_path / "Toy.ts", TS + line + "\n")
    with pytest.raises(ValueError, match="line 12"):
        formats.read(path)


def test_train_and_test_files_belong_together(tmp_path):
    write(tmp_path / "Toy_TRAIN.ts", TS)
    write(tmp_path / "Toy_TRAIN.txt", "1 0.5 0.25")  # as archives of UCR sets have it
    write(tmp_path / "Toy_TEST.ts", TS)
    for name in ("", "Toy_TRAIN.ts"):
        data = load(str(tmp_path / name))
        assert {split: len(part) for split, part in data.parts.items()} == {"train": 2, "test": 2}
        assert data.scheme.missing
        assert data.scheme.classes == ("run", "walk")


def test_csv_with_a_sequence_a_row(tmp_path):
    path = write(tmp_path / "t.csv", "a,b,c,label\n1,2,3,x\n4,5,,y\n")
    kind, (first, second) = formats.read(path)
    same(first.x, [[1], [2], [3]])
    same(second.x, [[4], [5]])  # shorter
    assert (kind, first.label, second.label) == ("one", "x", "y")


def test_csv_with_a_step_a_row_in_any_order(tmp_path):
    rows = "id,time,u,v,label\n7,2,3,4,x\n7,1,1,2,x\n8,1,5,,y\n"
    kind, (first, second) = formats.read(write(tmp_path / "t.csv", rows))
    same(first.x, [[1, 2], [3, 4]])
    same(second.x, [[5, np.nan]])
    assert (kind, first.times.tolist()) == ("one", [1, 2])


def test_csv_whose_labels_change_within_a_sequence_has_tags(tmp_path):
    kind, (first,) = formats.read(write(tmp_path / "t.csv", "id,u,label\n1,0,a\n1,1,b\n"))
    assert (kind, first.label) == ("tags", ("a", "b"))


def test_json_lines_of_every_kind(tmp_path):
    labels = {"label": "a", "tags": ["a", "b"], "labels": ["a"], "target": "ab"}
    kinds = {"label": "one", "tags": "tags", "labels": "multi", "target": "ctc"}
    for key, label in labels.items():
        row = {"x": [[1, 2], [None, 4]], "time": [0, 5], key: label}
        kind, (found,) = formats.read(write(tmp_path / "t.jsonl", json.dumps(row) + "\n\n"))
        same(found.x, [[1, 2], [np.nan, 4]])
        assert kind == kinds[key]
        assert found.label == (label if key == "label" else tuple(label))
        assert found.times.tolist() == [0, 5]


def test_npz_with_lengths_and_with_splits(tmp_path):
    x, y = np.arange(12.0).reshape(2, 3, 2), np.array([0, 1])
    np.savez(tmp_path / "a.npz", x=x, y=y, lengths=np.array([3, 1]))
    _, (first, second) = formats.read(tmp_path / "a.npz")
    same(first.x, x[0])
    same(second.x, x[1, :1])
    np.savez(tmp_path / "b.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
    found = find(str(tmp_path / "b.npz"))
    assert {split: len(part) for split, (_, part) in found.items()} == {"train": 2, "test": 1}


def test_texts_with_labels(tmp_path):
    write(tmp_path / "t.txt", "good\tI like it\nbad\tno\n")
    write(tmp_path / "t.csv", 'text,label\n"I, too",good\nno,bad\n')
    assert [e.label for e in formats.read(tmp_path / "t.txt")[1]] == ["good", "bad"]
    assert formats.read(tmp_path / "t.csv")[1][0].x == "I, too"


def png(image, filters):
    """A PNG of [H, W, 1] with each row written by the filter of that number."""
    height, width, _ = image.shape
    rows, above = b"", np.zeros(width, np.int64)
    for line, kind in zip(image[:, :, 0].astype(np.int64), filters, strict=True):
        left = np.concatenate([[0], line[:-1]])
        corner = np.concatenate([[0], above[:-1]])
        p = left + above - corner
        near = np.stack([abs(p - left), abs(p - above), abs(p - corner)])
        paeth = np.choose(near.argmin(0), [left, above, corner])
        guess = [0 * line, left, above, (left + above) // 2, paeth][kind]
        rows += bytes([kind]) + ((line - guess) % 256).astype(np.uint8).tobytes()
        above = line

    def chunk(name, body):
        check = zlib.crc32(name + body)
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def test_images_in_folders_are_sequences_of_rows_or_pixels(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (5, 4, 1))
    for name, content in {
        "cat/a.png": png(image, range(5)),
        "dog/b.pgm": b"P5 # drawn\n4 5\n255\n" + image.astype(np.uint8).tobytes(),
    }.items():
        path = tmp_path / name
        path.parent.mkdir()
        path.write_bytes(content)
        np.testing.assert_allclose(read_image(path), image / 255, atol=1e-6)
    _, (rows, _) = formats.read_folder(tmp_path)
    _, (pixels, other) = formats.read_folder(tmp_path, pixels=True)
    assert (rows.x.shape, pixels.x.shape) == ((5, 4), (20, 1))
    assert (pixels.label, other.label) == ("cat", "dog")


def test_what_does_not_fit_is_refused_with_its_reason(tmp_path):
    with pytest.raises(FileNotFoundError, match="digits"):
        load("no-such-file.ts")
    with pytest.raises(ValueError, match=r"\.npz"):
        formats.read(write(tmp_path / "t.doc", "x"))
    with pytest.raises(ValueError, match="two different labels"):
        load(str(write(tmp_path / "t.txt", "a\tb\na\tc\n")))
    with pytest.raises(ValueError, match="line 3: 1 fields"):
        formats.read(write(tmp_path / "t.csv", "a,label\n1,2\n3\n"))


def test_arrays_may_have_the_names_that_others_give_them(tmp_path):
    x, y = np.zeros((4, 5), np.float32), np.arange(4)
    np.savez(tmp_path / "a.npz", X=x, labels=y)
    assert [e.label for e in formats.read(tmp_path / "a.npz")[1]] == ["0", "1", "2", "3"]
    np.savez(tmp_path / "b.npz", X_train=x, y_train=y, X_test=x, y_test=y)
    assert set(formats.read_npz_splits(tmp_path / "b.npz") or ()) == {"train", "test"}


def test_the_older_ucr_format_has_its_label_first(tmp_path):
    (tmp_path / "a.tsv").write_text("1\t0.5\t1e-3\n2\t3\tNaN\n")
    first, second = formats.read(tmp_path / "a.tsv")[1]
    assert (first.label, np.ravel(first.x).tolist()) == ("1", pytest.approx([0.5, 0.001]))
    assert (second.label, np.ravel(second.x).tolist()) == ("2", [3])


def test_texts_and_labels_are_found_by_what_is_in_them(tmp_path):
    rows = [f"{k},it was so {k},{'+-'[k % 2]}" for k in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(["id,review,verdict", *rows]))
    first, *_ = formats.read(tmp_path / "a.csv")[1]
    assert (first.x, first.label) == ("it was so 0", "+")


def test_npz_with_a_label_a_step_and_with_several_labels(tmp_path):
    x = np.zeros((2, 3))
    np.savez(tmp_path / "tags.npz", x=x, y=[[0, 1, 2], [2, 1, 0]], lengths=np.array([3, 2]))
    kind, examples = formats.read(tmp_path / "tags.npz")
    assert kind == "tags"
    assert [e.label for e in examples] == [("0", "1", "2"), ("2", "1")]
    np.savez(tmp_path / "multi.npz", x=x, y=[[1, 0, 0, 1], [0, 0, 0, 0]])
    kind, examples = formats.read(tmp_path / "multi.npz")
    assert kind == "multi"
    assert [e.label for e in examples] == [("0", "3"), ()]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.zeros((2, 3))}, "expected x, y"),
        ({"x": np.zeros(3)}, r"x has the shape \(3,\) .* expected numbers \[N, T\]"),
        ({"x": np.array([["a", "b"]])}, "x has .* expected numbers"),
        ({"x": np.zeros((2, 3)), "lengths": np.array([1, 4])}, r"lengths .* from 1 to 3"),
        ({"x": np.zeros((2, 3)), "lengths": np.array([1, 0])}, r"lengths .* from 1 to 3"),
        ({"x": np.zeros((2, 3)), "lengths": np.array([1])}, r"lengths .* expected \[2\]"),
        ({"x": np.zeros((2, 3)), "times": np.zeros((2, 2))}, r"times .* expected numbers \[2, 3\]"),
        ({"x": np.zeros((2, 3)), "y": np.zeros(3)}, r"y has the shape \(3,\)"),
        ({"x": np.zeros((2, 3)), "y": np.zeros((2, 3, 1))}, "y has the shape"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(arrays, message, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        formats.read(tmp_path / "a.npz")


def test_folders_of_texts_are_classes_and_other_folders_are_refused(tmp_path):
    for name in ("good", "bad"):
        (tmp_path / "texts" / name).mkdir(parents=True)
        (tmp_path / "texts" / name / "one.txt").write_text(f"a {name} film")
    found = find(str(tmp_path / "texts"))
    assert {e.label: e.x for e in found["all"][1]} == {"good": "a good film", "bad": "a bad film"}
    (tmp_path / "else" / "x").mkdir(parents=True)
    (tmp_path / "else" / "x" / "one.bin").write_bytes(b"\0")
    with pytest.raises(ValueError, match="a folder a class"):
        find(str(tmp_path / "else"))
