"""Names of strangers reach a terminal escaped, whatever prints them, and begin no line there."""

import io
import json
import random
import sys

import pytest

from metarnn.cli import doctor as doctors
from metarnn.cli.main import main
from metarnn.training.progress import one_line

TITLE, COLOUR, LINE = "\x1b]0;owned\x07", "\x1b[2J\x9b31m", "x\nFAKE"
FORMULA = "=cmd|' /C calc'!A0"
HOSTILE = {"title": TITLE, "colour": COLOUR, "line": LINE, "formula": FORMULA}
FEW = ["--steps", "2", "--validate-every", "2", "--width", "4", "--device", "cpu"]
FEW += ["--engine", "eager"]


@pytest.fixture
def call(capsys, monkeypatch):
    """Runs a command as on a terminal, where nothing of a name may be raw: what it says."""
    monkeypatch.setenv("TERM", "dumb")

    def run(*arguments, stdin="", code=0):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        capsys.readouterr()
        status = main([str(each) for each in arguments])
        said = capsys.readouterr()
        assert status == code, said.err
        for text in (said.out, said.err):
            assert not [c for c in text if not c.isprintable() and c not in "\n\t"]
            assert "\nFAKE" not in text
        return said.out + said.err

    return run


def cells(tmp_path, name):
    """A classifier's, a forecaster's and a translator's files with that in their names."""
    drawn = random.Random(0)
    lines = []
    for k in range(60):
        values = [[drawn.gauss(k % 2, 1)] for _ in range(5)]
        lines.append(json.dumps({"label": f"{name}{k % 2}", "x": values}))
    (tmp_path / "examples.jsonl").write_text("\n".join(lines) + "\n")
    quoted = '"' + name.replace('"', '""') + '"'
    rows = [f"time,{quoted}", *(f"{k},{k % 7 + drawn.random():.3f}" for k in range(90))]
    (tmp_path / "series.csv").write_text("\n".join(rows) + "\n")
    pairs = [{"source": f"{name} {k}", "target": f"{k} {name}"} for k in range(200)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(p) + "\n" for p in pairs))
    (tmp_path / "text.txt").write_text(" ".join(f"{name} word {k % 9}" for k in range(300)))


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_labels_are_printed_escaped(name, tmp_path, call):
    cells(tmp_path, name)
    data, run = tmp_path / "examples.jsonl", tmp_path / "run"
    said = call("train", "classification", "--data", data, *FEW, "--out", run)
    assert one_line(name) in said  # the confusion matrix has the class
    call("evaluate", run)
    call("report", run)
    call("diagnose", run, "--length", "4")
    labels = call("classify", run, "--data", data)
    assert ("'=cmd" in labels) == (name == FORMULA)


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_series_are_printed_escaped(name, tmp_path, call):
    cells(tmp_path, name)
    data, run = tmp_path / "series.csv", tmp_path / "run"
    flags = ["--horizon", "3", "--lookback", "9", "--data", data]
    call("train", "forecasting", *flags, *FEW, "--out", run)
    call("evaluate", run)
    call("report", run)
    forecast = call("forecast", run)
    assert ("'=cmd" in forecast) == (name == FORMULA)
    call("train", "forecasting", *flags, "--series", name, *FEW, "--out", tmp_path / "b", code=2)


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_texts_are_printed_escaped(name, tmp_path, call):
    cells(tmp_path, name)
    run, pairs = tmp_path / "run", tmp_path / "pairs.jsonl"
    sides = ["--source", "source", "--target", "target", "--data", pairs]
    call("train", "translation", *sides, *FEW, "--embedding", "4", "--batch", "8", "--out", run)
    call("evaluate", run, "--device", "cpu")
    call("report", run)
    call("translate", run, "--device", "cpu", stdin=f"{name.strip()} 1\n")
    call("data", "describe", tmp_path / "text.txt")


@pytest.mark.parametrize("name", [TITLE, COLOUR, FORMULA])
def test_paths_are_printed_escaped(name, tmp_path, call, monkeypatch):
    folder = tmp_path / name.replace("/", "")
    folder.mkdir()
    (folder / "text.txt").write_text("one two three\n" * 40)
    run = folder / "run"
    call("train", "lm", "--data", folder / "text.txt", *FEW, "--embedding", "4", "--out", run)
    call("data", "describe", folder / "text.txt", "--out", folder / "zipf.svg")
    call("cell", "show", run, "--svg", folder / "cell.svg")
    call("export", run)
    call("evaluate", run)
    call("report", run)
    call("diagnose", run, "--length", "4")
    flags = ["--steps", "1", "--params", "2k", "--batch", "2", "--length", "5"]
    call("compare", "--cells", run, *flags, "--out", folder / "c.svg")
    for verb in ("classify", "translate", "forecast", "cell show"):
        call(*verb.split(), folder / ("none" if verb == "cell show" else "run"), code=2)
    monkeypatch.setattr(doctors, "cache_folder", lambda: folder)
    call("doctor")


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_classes_of_new_tasks_are_printed_escaped(name, tmp_path, call):
    drawn = random.Random(0)

    def write(folder, names):
        for each in names:
            (folder / each).mkdir(parents=True)
            for k in range(6):
                rows = [f"{drawn.gauss(0, 1):.3f}" for _ in range(4)]
                (folder / each / f"{k}.csv").write_text("\n".join(rows) + "\n")

    safe = name.replace("/", "")
    write(tmp_path / "data", [f"{safe}{k}" for k in range(9)])
    write(tmp_path / "new", [f"{safe}a", f"{safe}b"])
    flags = ["--family", "sequences", "--data", tmp_path / "data", "--ways", "2", "--shots", "2"]
    flags += ["--queries", "1", "--tasks", "2", "--steps", "1", "--method", "prototypical"]
    run = tmp_path / "run"
    call("train", "fewshot", *flags, "--device", "cpu", "--validate-every", "1", "--out", run)
    query = tmp_path / "new" / f"{safe}a"
    said = call("adapt", run, "--support", tmp_path / "new", "--query", query)
    assert ("'=cmd" in said) == (name == FORMULA)
