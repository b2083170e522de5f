import json

import pytest

from metarnn.cells import CELLS, LSTM
from metarnn.cli.main import main
from metarnn.graph import save, to_json, trace_cell


@pytest.mark.parametrize("name", CELLS)
def test_every_built_in_cell_can_be_shown(name, capsys):
    assert main(["cell", "show", name]) == 0
    found = capsys.readouterr().out
    for expected in ("y_t = ", "parameters", "states", "stage 1 of each step", "engine: "):
        assert expected in found


def test_a_cell_from_a_file_with_a_picture(tmp_path, capsys):
    path, picture = tmp_path / "found.json", tmp_path / "found.svg"
    save(trace_cell(LSTM(5, 6)), path)
    arguments = ["--svg", str(picture), "--input-size", "9", "--latex"]
    assert main(["cell", "show", str(path), *arguments]) == 0
    found = capsys.readouterr().out
    assert r"\begin{aligned}" in found
    assert "24 × 9" in found
    assert picture.read_text().startswith("<svg")
    assert main(["cell", "show", "gru", "--svg", str(picture), "--unfold", "3"]) == 0
    assert "over 3 steps" in picture.read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["found.json", "found.svg"]


WRONG = {
    "lst": ["lst"],
    "nothing.json": ["nothing.json"],
    "width=0": ["FILE", "--hidden-size", "0"],
    "steps=0": ["lstm", "--svg", "x.svg", "--unfold", "0"],
    "--svg FILE": ["lstm", "--unfold", "3"],
    "hidden_size=-1": ["lstm", "--hidden-size", "-1"],
    "no known operation": ["BROKEN"],
    "nowhere": ["lstm", "--svg", "nowhere/x.svg"],
}


@pytest.mark.parametrize("why", WRONG)
def test_an_error_is_one_line_and_the_exit_code_2(why, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    document = json.loads(to_json(trace_cell(LSTM(3, 4))))
    (tmp_path / "file.json").write_text(json.dumps(document))
    document["nodes"][5]["op"] = "launch"
    (tmp_path / "broken.json").write_text(json.dumps(document))
    files = {"FILE": "file.json", "BROKEN": "broken.json"}
    assert main(["cell", "show", *(files.get(a, a) for a in WRONG[why])]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert why in message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.json", "file.json"]
