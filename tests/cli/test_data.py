import io
import sys

import pytest

from metarnn.cli.main import main


def test_a_text_is_described_and_drawn(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("the cat sat on the mat, the cat sat.\n" * 30)
    picture = tmp_path / "zipf.svg"
    data = str(tmp_path / "a.txt")
    assert main(["data", "describe", "--data", data, "--out", str(picture)]) == 0
    found = capsys.readouterr().out
    for expected in (
        "1 documents",
        "270 words",
        "stop words",
        "slope",
        "the cat 60",
        "train",
        "Kneser–Ney",
    ):
        assert expected in found
    assert picture.read_text().startswith("<svg")


def test_standard_input_is_described(monkeypatch, capsys):
    text = io.TextIOWrapper(io.BytesIO(b"one two two\n" * 50))
    monkeypatch.setattr(sys, "stdin", text)
    assert main(["data", "describe", "--data", "-"]) == 0
    assert "-: 1 documents, 50 lines, 150 words" in capsys.readouterr().out


def test_with_no_argument_the_embedded_text_is_described(capsys):
    assert main(["data", "describe"]) == 0
    found = capsys.readouterr().out
    assert "pydoc: " in found
    assert "Laplace" in found


WRONG = {
    "no such file": ["--data", "nothing.txt"],
    "is empty": ["--data", "empty.txt"],
    "is no text": ["--data", "binary"],
    "folder that exists": ["--out", "nowhere/x.svg"],
    "90/5/5": ["--split", "half"],
}


@pytest.mark.parametrize("why", WRONG)
def test_an_error_is_one_line_and_the_exit_code_2(why, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    assert main(["data", "describe", *WRONG[why]]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert why in message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["binary", "empty.txt"]
