"""`metarnn train classification`, `evaluate` and `classify`."""

import csv
import json

import pytest

from metarnn.cli.main import main
from metarnn.report import work as exhibits
from metarnn.report.write import write_report
from metarnn.tasks.classification import ClassifierOptions, Scheme, build_model
from metarnn.tasks.pretrained import save_pretrained
from metarnn.training import Folder, checkpoint

SMALL = (
    *("--width", "6", "--batch", "4", "--steps", "4", "--validate-every", "2", "--device", "cpu"),
    *("--schedule", "constant"),
)
TS = "@classLabel true a b\n@data\n" + "1,2,3:a\n3,2,1:b\n1,2,4:a\n5,2,1:b\n" * 3


@pytest.fixture
def data(tmp_path):
    for part in ("TRAIN", "TEST"):
        (tmp_path / f"Toy_{part}.ts").write_text(TS)
    return tmp_path / "Toy_TRAIN.ts"


def test_from_a_file_to_labels(data, tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "labels.csv"
    train = ["train", "classification", "--data", str(data), "--out", str(run), *SMALL]
    assert main(train) == 0
    printed = capsys.readouterr().out
    for word in ("accuracy", "macro_f1", "true class", "most frequent", "nearest"):
        assert word in printed
    assert main(["evaluate", str(run)]) == 0
    assert "calibration_error" in capsys.readouterr().out
    assert main(["evaluate", str(run), "--split", "valid"]) == 2  # too few to set some aside
    assert "expected one that these data have: train, test" in capsys.readouterr().err
    assert main(["classify", str(run), "--data", str(data), "--out", str(out)]) == 0
    rows = list(csv.DictReader(out.open()))
    assert len(rows) == 24
    for row in rows:
        assert float(row["probability"]) == max(float(row["a"]), float(row["b"]))


def test_a_run_that_goes_on_ends_as_one_that_never_stopped(data, tmp_path):
    def train(out, *flags):
        first = ["train", "classification", "--data", str(data), "--out", str(tmp_path / out)]
        assert main([*first, *SMALL, *flags]) == 0

    train("whole")
    train("parts", "--steps", "2")
    flags = ["--resume", "--out", str(tmp_path / "parts"), "--steps", "4"]
    assert main(["train", "classification", *flags]) == 0
    ours, theirs = (checkpoint.load(Folder(tmp_path / out).last) for out in ("whole", "parts"))
    assert all(w.equal(theirs["weights"][name]) for name, w in ours["weights"].items())


def test_only_a_classifier_classifies(tmp_path, capsys):
    assert main(["classify", str(tmp_path)]) == 2
    assert "model.json" in capsys.readouterr().err


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kind", "label", "columns"),
    [
        ("ctc", ["a", "b"], ["example", "labels"]),
        ("tags", ["a", "b", "a"], ["example", "step", "label", "probability", "a", "b"]),
        ("multi", ["a", "b"], ["example", "labels", "a", "b"]),
    ],
)
def test_labels_of_every_kind_are_written(kind, label, columns, tmp_path):
    scheme = Scheme(kind, ("a", "b"), 1, mean=(0.0,), std=(1.0,))
    save_pretrained(build_model(scheme, ClassifierOptions(width=4)), tmp_path / "model")
    data, out = tmp_path / "x.jsonl", tmp_path / "labels.csv"
    data.write_text(json.dumps({"x": [1, 2, 3], "label": label}) + "\n")
    assert main(["classify", str(tmp_path / "model"), "--data", str(data), "--out", str(out)]) == 0
    rows = list(csv.DictReader(out.open()))
    assert list(rows[0]) == columns
    assert len(rows) == (3 if kind == "tags" else 1)
    for row in rows:
        told = set((row.get("labels") or row.get("label") or "").split())
        assert told <= {"a", "b"}
        if kind == "multi":
            assert told == {name for name in "ab" if float(row[name]) > 0.5}


def test_a_page_says_of_how_many_examples_its_confusion_matrix_is(data, tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert main(["train", "classification", "--data", str(data), "--out", str(run), *SMALL]) == 0
    monkeypatch.setattr(exhibits, "EXAMPLES", 5)
    assert "Of 5 of the 12 examples of test, drawn at random." in write_report([run]).read_text()
    monkeypatch.setattr(exhibits, "EXAMPLES", 12)
    assert "drawn at random" not in write_report([run]).read_text()
