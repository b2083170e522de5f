import json
from typing import Any

import pytest
import torch

from metarnn import __version__
from metarnn.bench import gradients
from metarnn.cli import bench as cli
from metarnn.cli.main import main

KEYS = ["cell", "mode", "T", "B", "I", "H", "dtype", "engine", "ours_ms", "torch_ms", "eager_ms"]
KEYS += ["ratio_torch", "ratio_eager", "gflops", "torch_gflops"]


def bench(*arguments: str) -> None:
    assert main(["bench", "cells", *arguments]) == 0


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_quick_run_prints_a_table_and_writes_what_was_measured(
    dtype, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "160")
    file = tmp_path / "cells.json"
    file.write_text("old")
    bench("--quick", "--cells", "lstm", "graph8", "--dtype", dtype, "--json", str(file))
    table = capsys.readouterr().out
    rows = json.loads(file.read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["cells.json"]
    assert {(row["cell"], row["mode"]) for row in rows} == {
        (cell, mode) for cell in ("lstm", "graph8") for mode in ("inference", "training", "step")
    }
    for row in rows:
        assert list(row)[: len(KEYS)] == KEYS
        assert row["dtype"] == dtype
        assert row["ours_ms"] > 0
        assert row["machine"]
        assert row["torch"] == torch.__version__
        assert row["threads"] == torch.get_num_threads()
        assert row["metarnn"] == __version__
        assert row["date"].startswith("20")
    for word in ("graph8", "training", "× eager", "GFLOP/s"):
        assert word in table


@pytest.mark.parametrize("tf32", [True, False])
def test_all_multiply_float32_alike_and_as_before_afterwards(tf32, monkeypatch):
    def switches() -> list[Any]:
        return [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]

    before, seen = switches(), []
    monkeypatch.setattr(cli, "measure", lambda *arguments: seen.append(switches()))
    bench("--quick", "--cells", "gru", "--tf32" if tf32 else "--no-tf32")
    assert seen
    assert all(found == [tf32, tf32] for found in seen)
    assert switches() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cells", "lstn"], "Did you mean 'lstm'"),
        (["--json", "/nowhere/at/all.json"], "a folder that exists"),
        (["--minutes", "0"], "minutes"),
        (["--minutes", "nan"], "minutes"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(arguments, message, capsys):
    assert main(["bench", "cells", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_layer_that_is_none_is_refused(capsys):
    assert main(["bench", "generated", "--layers", "scael"]) == 2
    assert "Did you mean 'scale'" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_cuda_device_the_message_says_so(capsys):
    for what in ("cells", "generated"):
        assert main(["bench", what, "--quick", "--device", "cuda"]) == 2
        assert "no CUDA device" in capsys.readouterr().err


@pytest.mark.medium
def test_what_generating_weights_costs_is_shown_beside_the_plain_unit(tmp_path, capsys):
    path = tmp_path / "generated.json"
    assert main(["bench", "generated", "--quick", "--json", str(path)]) == 0
    found = capsys.readouterr().out
    for expected in ("lstm", "scale", "lowrank", "hyperlstm, eager", "times the LSTM"):
        assert expected in found
    rows = {row["layer"]: row for row in json.loads(path.read_text())}
    plain, scale, eager = (rows[name] for name in ("lstm", "scale", "hyperlstm, eager"))
    assert scale["times_lstm"] == pytest.approx(scale["ms"] / plain["ms"])
    assert scale["faster_than_eager"] == pytest.approx(eager["ms"] / scale["ms"])
    assert eager["engine"] == "eager"
    assert main(["bench", "generated", "--quick", "--layers", "scale", "--json", str(path)]) == 0
    assert [row["layer"] for row in json.loads(path.read_text())] == [
        "lstm",
        "scale",
        "hyperlstm, eager",
    ]


def test_gradients_are_compared_in_tables(monkeypatch, capsys):
    row = {"T": 8, "seconds": 0.5}
    monkeypatch.setattr(gradients, "PROBLEMS", ("copy",))
    monkeypatch.setattr(gradients, "cosines", lambda problem, seeds: {"rflo": (0.5, seeds / 4)})
    monkeypatch.setattr(gradients, "checkpoints", lambda: iter([row]))
    monkeypatch.setattr(gradients, "elementwise", lambda: iter([{**row, "T": 16}]))
    monkeypatch.setattr(gradients, "memory_over_time", lambda: {10: 1.5, 100: 1.25})
    which = ["cosines", "checkpoints", "elementwise", "memory"]
    assert main(["bench", "gradients", "--seeds", "1", "--which", *which]) == 0
    words = capsys.readouterr().out.split()
    for word in ("copy", "(0.25)", "0.50", "8", "16", "1.25"):
        assert word in words
