"""`metarnn train translation`, `translate` and `evaluate`, from pairs to translations."""

import io
import sys
import tomllib

import pytest

from metarnn.cli.main import main
from metarnn.cli.train import parse
from metarnn.runs.translation import ENTRY, Config

WORDS = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
SMALL = (
    *("--width", "32", "--embedding", "16", "--batch", "16", "--steps", "150", "--device", "cpu"),
    *("--validate-every", "75", "--lr", "0.01", "--length-penalty", "1.0"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    lines = {"train": range(10, 400, 3), "valid": range(11, 99, 9), "test": range(12, 99, 9)}
    for name, numbers in lines.items():
        text = "".join(f"{' '.join(WORDS[int(d)] for d in str(n))}\t{n}\n" for n in numbers)
        (folder / f"{name}.tsv").write_text(text + "\tleft out\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "digits"
    assert main(["train", "translation", "--data", str(data), "--out", str(out), *SMALL]) == 0
    return out


def translate(monkeypatch, capsys, run, text, *flags):
    stdin = io.TextIOWrapper(io.BytesIO(text if isinstance(text, bytes) else text.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    main(["translate", str(run), *flags])
    return capsys.readouterr()


@pytest.mark.medium
def test_a_run_is_a_folder_with_both_vocabularies_and_cells(run):
    names = {path.name for path in run.iterdir()}
    assert {"source.json", "target.json", "cell.json", "decoder.json"} <= names
    config = tomllib.loads((run / "config.toml").read_text())
    assert config["task"] == "translation"
    assert config["max_length"] == 10 + 3 * 3 // 2


@pytest.mark.medium
def test_lines_come_out_as_they_went_in(run, monkeypatch, capsys):
    text = "eins zwei drei\n\nvier fünf\nein ünbekanntes Wort\n"
    found = translate(monkeypatch, capsys, run, text)
    assert "4 sentences, 1 of them empty, 3 unknown tokens" in found.err
    out = found.out.split("\n")
    assert out[:3] == ["123", "", "45"]
    assert len(out) == 5
    again = translate(monkeypatch, capsys, run, text, "--batch", "1", "--beam", "1").out
    assert again.split("\n") == out


@pytest.mark.medium
def test_nbest_has_numbers_scores_and_texts_the_best_first(run, monkeypatch, capsys):
    text = "eins zwei\n\nvier fünf sechs\n"
    out = translate(monkeypatch, capsys, run, text, "--beam", "4", "--nbest", "3").out
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[0] for row in rows] == ["0"] * 3 + ["1"] + ["2"] * 3
    scores = [float(row[1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)
    best = translate(monkeypatch, capsys, run, text, "--beam", "4").out
    assert [rows[k][2] for k in (0, 3, 4)] == best.splitlines()
    assert len({row[2] for row in rows[:3]}) == 3
    drawn = [
        translate(monkeypatch, capsys, run, text, "--sample", "--temperature", "3", *flags).out
        for flags in ((), ("--batch", "1"), ("--seed", "9"))
    ]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.medium
def test_pictures_show_what_was_attended_to(run, monkeypatch, capsys, tmp_path):
    folder = tmp_path / "pictures"
    flags = ("--pictures", str(folder), "--prefix", "9")
    out = translate(monkeypatch, capsys, run, "eins zwei\n\nvier\n", *flags).out
    assert [line[:1] for line in out.splitlines()] == ["9", "", "9"]
    assert sorted(path.name for path in folder.iterdir()) == ["0.svg", "2.svg"]
    written = len(out.splitlines()[0]) + 1
    squares = (folder / "0.svg").read_text().count("<title>")
    assert squares == written * (len("eins zwei") + 1)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        (b"eins\n\xff\n", (), "line 2 of the input is no UTF-8"),
        ("eins\n", ("--beam", "2", "--nbest", "3"), "nbest=3"),
        ("eins\n", ("--beam", "4", "--groups", "3"), "groups=3"),
        ("eins\n", ("--copy-unknown",), "copy_unknown"),
        ("eins\n", ("--sample", "--top-p", "2"), "top_p"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(run, text, flags, message, monkeypatch, capsys):
    found = translate(monkeypatch, capsys, run, text, *flags)
    assert message in found.err
    assert found.err.count("\n") == 1
    assert not found.out


@pytest.mark.medium
def test_evaluate_scores_with_a_beam_and_says_so(run, data, capsys):
    main(["evaluate", str(run), "--beam", "3", "--device", "cpu"])
    rows = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines())
    assert (rows["beam"], rows["sentences"]) == ("3", "10")
    assert 0 <= float(rows["exact"]) <= 1
    assert float(rows["edits"]) < 0.5
    main(["evaluate", str(run), "--data", str(data / "test.tsv"), "--split", "all"])
    whole = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines())
    assert whole["nll"] == rows["nll"]


@pytest.mark.medium
def test_training_goes_on_where_it_stopped(data, tmp_path, capsys):
    call = ["train", "translation", "--data", str(data), *SMALL, "--dropout", "0.2"]
    call += ["--sampling", "0.5", "--sampling-steps", "10", "--save-every", "10"]
    main([*call, "--out", str(tmp_path / "whole"), "--steps", "30"])
    main([*call, "--out", str(tmp_path / "part"), "--steps", "10"])
    main(["train", "translation", "--resume", "--out", str(tmp_path / "part"), "--steps", "30"])
    capsys.readouterr()
    whole, part = ((tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    assert whole.read_bytes() == part.read_bytes()


def test_counts_of_what_was_left_out_are_shown(data, tmp_path, capsys):
    flags = [*SMALL, "--longest", "12", "--steps", "1", "--cell", "gru", "--engine", "eager"]
    main(["train", "translation", "--data", str(data), "--out", str(tmp_path / "run"), *flags])
    errors = capsys.readouterr().err
    assert "1 left out with an empty side" in errors
    assert "left out as too long" in errors


@pytest.mark.parametrize("preset", ENTRY.presets)
def test_every_preset_is_a_configuration_that_ends(preset):
    found = parse(ENTRY, ["--preset", preset])
    assert isinstance(found, Config)
    assert found.steps or found.epochs or found.minutes


def test_a_run_of_another_kind_is_refused(tmp_path, capsys):
    (tmp_path / "config.toml").write_text('task = "lm"\n')
    assert main(["translate", str(tmp_path)]) == 2
    assert "run of a translator" in capsys.readouterr().err
