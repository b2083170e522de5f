import json

import pytest

from metarnn.cli.main import main


def test_cells_are_compared_at_their_start(tmp_path, capsys):
    out = tmp_path / "reach.svg"
    main(["diagnose", "--cell", "elman", "lstm", "--width", "8", "--length", "20",
          "--out", str(out), "--data", str(tmp_path / "reach.json")])  # fmt: skip
    printed = capsys.readouterr().out
    assert "memory horizon" in printed
    assert "elman: " in printed
    assert "lstm: " in printed
    assert out.read_text().startswith("<svg")
    figures = json.loads((tmp_path / "reach.json").read_text())
    assert len(figures["lstm"]["norms"]) == 10


@pytest.mark.medium
def test_a_run_is_diagnosed_on_its_data(tmp_path, capsys):
    run = tmp_path / "run"
    flags = ["--width", "8", "--embedding", "4", "--steps", "3", "--batch", "4", "--length", "16"]
    assert main(["train", "lm", *flags, "--out", str(run)]) == 0
    main(["diagnose", str(run), "--length", "30"])
    assert "share of ∂L/∂θ within lag 10" in capsys.readouterr().out
    assert (run / "diagnosis.svg").exists()
    assert json.loads((run / "diagnosis.json").read_text())["run"]["norms"]


@pytest.mark.medium
def test_a_run_whose_loss_is_no_sum_over_time_is_diagnosed_by_its_layer(tmp_path, capsys):
    run = tmp_path / "run"
    flags = ["--width", "8", "--steps", "3", "--batch", "8"]
    assert main(["train", "classification", *flags, "--out", str(run)]) == 0
    assert main(["diagnose", str(run)]) == 0
    assert "memory horizon" in capsys.readouterr().out
    found = json.loads((run / "diagnosis.json").read_text())["run"]
    assert len(found["norms"]) == 4  # half of the embedded sequences' eight steps


WRONG = [[], ["nowhere"], ["--cell", "lstn"], ["--cell", "lstm", "--batch", "0"],
         ["--cell", "lstm", "--inputs", "0"]]  # fmt: skip


@pytest.mark.parametrize("flags", WRONG)
def test_what_cannot_be_diagnosed_is_said(flags, capsys):
    assert main(["diagnose", *flags]) == 2
    assert "metarnn diagnose: " in capsys.readouterr().err
