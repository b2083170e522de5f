"""Every verb on run folders of every task, whatever recurrent unit their models have.

Each verb does its work, which an oracle checks, or refuses with what to do instead.
"""

import csv
import io
import json
import random
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from metarnn.cells import LSTM
from metarnn.cli.main import COMMANDS, main
from metarnn.graph import read, save, trace_cell
from metarnn.runs.tasks import open_run
from metarnn.tasks.pretrained import from_pretrained

WIDTH = 6
FEW = ["--steps", "2", "--validate-every", "2", "--width", str(WIDTH), "--device", "cpu"]
FEW += ["--engine", "eager"]
VERBS = {
    "lm": "generate",
    "translation": "translate",
    "classification": "classify",
    "forecasting": "forecast",
}
CELLS = {
    "plain": "gru",
    "found": "FOUND",
    "generated": "meta-gru",
    "found, generated": "meta-FOUND",
    "mogrified": "mogrifier-gru",
}
# Fast tests take each task, kind of unit and direction, but not every combination.
FAST = {
    ("lm", "generated", "one"),
    ("lm", "mogrifier", "one"),
    ("translation", "found", "two"),
    ("translation", "generated", "one"),
    ("classification", "found, generated", "two"),
    ("classification", "generated", "one"),
    ("forecasting", "generated", "two"),
    ("forecasting", "plain", "one"),
    ("forecasting", "mogrified", "one"),
}
RUNS = [
    pytest.param((task, kind, ways), marks=() if (task, kind, ways) in FAST else pytest.mark.medium)
    for task in VERBS
    for kind in (*CELLS, *(["mogrifier"] if task == "lm" else []))
    for ways in (["one"] if task == "lm" else ["one", "two"])
]


@pytest.fixture(scope="session")
def work(tmp_path_factory):
    """A folder with data and with a unit that was found."""
    folder = tmp_path_factory.mktemp("walk")
    drawn = random.Random(0)
    text = "".join(drawn.choice("abcdef \n") for _ in range(4000))
    (folder / "text.txt").write_text(text)
    pairs = (f"{'ab ' * (1 + k % 5)}{k}\t{k}{'x' * (k % 4)}" for k in range(120))
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    rows = ["time,value"]
    rows += [f"{k},{10 + 3 * np.sin(k / 3):.4f}" for k in range(150)]
    (folder / "series.csv").write_text("\n".join(rows) + "\n")
    lines = []
    for k in range(80):
        slope = 1 if k % 2 else -1
        values = [slope * t + drawn.gauss(0, 1) for t in range(6 + k % 3)]
        example = {"label": "up" if k % 2 else "down", "x": [[round(v, 3)] for v in values]}
        lines.append(json.dumps(example))
    (folder / "examples.jsonl").write_text("\n".join(lines) + "\n")
    save(trace_cell(LSTM(WIDTH, WIDTH)), folder / "found.json")
    return folder


DATA = {
    "lm": "text.txt",
    "translation": "pairs.tsv",
    "classification": "examples.jsonl",
    "forecasting": "series.csv",
}
MORE = {
    "lm": ["--level", "character"],
    "translation": ["--embedding", str(WIDTH)],
    "classification": [],
    "forecasting": ["--horizon", "4", "--lookback", "16"],
}


@pytest.fixture(scope="session")
def trained(work):
    """Trains a run at its first use: (task, kind of unit, directions) -> its folder."""
    made = {}

    def train(task, kind, ways):
        if (task, kind, ways) not in made:
            out = work / "-".join(["run", task, *kind.replace(",", "").split(), ways])
            flags = ["--data", str(work / DATA[task]), *MORE[task], *FEW]
            if kind == "mogrifier":
                flags += ["--model", "mogrifier", "--cell", "lstm"]
            else:
                flags += ["--cell", CELLS[kind].replace("FOUND", str(work / "found.json"))]
            if task != "lm":
                flags.append("--bidirectional" if ways == "two" else "--no-bidirectional")
            assert main(["train", task, "--out", str(out), *flags]) == 0
            made[task, kind, ways] = out
        return made[task, kind, ways]

    return train


class Run(NamedTuple):
    task: str
    kind: str
    ways: str
    path: Path


@pytest.fixture(params=RUNS, ids="-".join)
def chosen(request, trained):
    task, kind, ways = request.param
    return Run(task, kind, ways, trained(task, kind, ways))


@pytest.fixture
def call(capsys, monkeypatch):
    """Runs a command that works: its standard output."""

    def run(*arguments, stdin="", code=0):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        status = main([str(each) for each in arguments])
        said = capsys.readouterr()
        assert status == code, said.err
        assert "Traceback" not in said.err
        assert "Warning" not in said.err
        return said.out if code == 0 else said.err

    return run


def test_every_verb_has_its_place_in_the_walk():
    walked = {"cell show", "export", "evaluate", "report", "diagnose", "compare", "adapt"}
    walked |= {"data describe", *VERBS.values()}
    makes = {"learn", "train", "search"}  # runs, and do not read them
    without = {
        "bench cells",
        "bench generated",
        "bench gradients",
        "bench learn",
        "completion",
        "doctor",
    }
    assert walked | makes | without == set(COMMANDS)


def test_the_unit_is_shown(chosen, call):
    task, run = chosen.task, chosen.path
    files = ["cell.json", "decoder.json"] if task == "translation" else ["cell.json"]
    said = call("cell", "show", run)
    for file in files:
        graph = read(run / file)
        nodes = len(graph.nodes)
        assert f"{run / file}: input size" in said
        assert f"{nodes} nodes" in said
        alone = call("cell", "show", run / file)
        assert alone.strip() in said
        inputs = set(graph.named("input")) - {"x"}
        assert ("generated   " in alone) == bool(inputs)
        assert all(name in alone for name in inputs)
    assert "y_t = " in said


def test_the_model_is_loaded_with_its_weights(chosen):
    run = chosen.path
    model = from_pretrained(run)
    stored = load_file(run / "model.safetensors")
    assert {name: value.shape for name, value in model.state_dict().items()} == {
        name: value.shape for name, value in stored.items()
    }
    assert all(value.equal(stored[name]) for name, value in model.state_dict().items())


def test_the_model_is_exported(chosen, call, tmp_path):
    task, ways, run = chosen.task, chosen.ways, chosen.path
    pytest.importorskip("onnxruntime")
    said = call("export", run, "--out", tmp_path)  # refused by itself where outputs differ
    files = {path.name for path in tmp_path.iterdir()}
    streams = task in ("lm", "translation") or (task == "classification" and ways == "one")
    assert files == ({"step.onnx", "sequence.onnx"} if streams else {"sequence.onnx"})
    gaps = [float(gap) for gap in re.findall(r"at most (\S+) away", said)]
    assert len(gaps) == len(files)
    assert max(gaps) < 1e-4
    if streams and task != "translation":
        call("export", run, "--to", "torch", "--out", tmp_path)
        check_program(task, run, tmp_path / "step.pt2")
    else:
        said = call("export", run, "--to", "torch", "--out", tmp_path, code=2)
        assert "expected onnx, for this model" in said


@torch.no_grad()
def check_program(task, run, path):
    """A program of torch, step by step, answers what the model does."""
    model: Any = from_pretrained(run)
    program = torch.export.load(path).module()
    steps = torch.randint(5, (3, 4)) if task == "lm" else torch.randn(3, 4, 1)
    _, state = model.step(steps[0], None)
    for x in steps:
        y, after = model.step(x, state)
        found, *parts = program(x, *flat(state))
        torch.testing.assert_close(found, y, atol=1e-5, rtol=1e-5)
        for ours, theirs in zip(parts, flat(after), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
        state = after


def flat(state):
    return [state] if isinstance(state, torch.Tensor) else [t for part in state for t in flat(part)]


def test_the_scores_are_those_of_the_training(chosen, call, work):
    task, run = chosen.task, chosen.path
    said = call("evaluate", run, "--device", "cpu")
    found = re.search(r"^(nll|crps) +(\S+)", said, re.MULTILINE)
    assert found is not None
    name, value = found[1], float(found[2].replace(",", ""))
    everything = ["--data", work / DATA[task], "--split", "all"]
    refused = 2 if task == "forecasting" else 0
    whole = call("evaluate", run, "--device", "cpu", *everything, code=refused)
    assert ("expected train, valid or test" if refused else name) in whole
    opened = open_run(run, batch=1)
    job = opened.prepare()
    with torch.no_grad():
        scores = job.task.evaluate(from_pretrained(run), "test")
    assert value == pytest.approx(scores[name], abs=1e-5)


def test_each_task_has_its_verb(chosen, call, work):
    task, run = chosen.task, chosen.path
    if task == "lm":
        said = call("generate", run, "--length", "30", "--seed", "1")
        assert said == call("generate", run, "--length", "30", "--seed", "1")
        assert len(said) == 31
        assert set(said) <= set("abcdef \n")
        assert len(call("generate", run, "--length", "8", "--beam", "2")) == 9
    elif task == "translation":
        said = call("translate", run, "--device", "cpu", stdin="ab 1\n\nab ab 2\n")
        assert said.count("\n") == 3
        assert said.split("\n")[1] == ""
        assert set(said) <= set("0123456789x\n")
    elif task == "classification":
        said = call("classify", run, "--data", work / "examples.jsonl")
        head, *rows = csv.reader(io.StringIO(said))
        assert head == ["example", "label", "probability", "down", "up"]
        assert len(rows) == 80
        for _, label, p, *each in rows:
            assert p == each[head[3:].index(label)]
            assert float(p) == max(map(float, each))
        assert "expected what to label" in call("classify", run, code=2)
    else:
        head, *rows = csv.reader(io.StringIO(call("forecast", run)))
        assert head[:4] == ["series", "channel", "date", "forecast"]
        assert len(rows) == 4
        assert all(np.isfinite(float(row[3])) for row in rows)


def test_the_verbs_of_other_tasks_name_this_ones(chosen, call):
    task, run = chosen.task, chosen.path
    for verb in set(VERBS.values()) - {VERBS[task]}:
        said = call(verb, run, code=2)
        assert f"`metarnn {VERBS[task]} {run}`" in said
    said = call("adapt", run, "--support", run / "config.toml", code=2)
    assert f"`metarnn {VERBS[task]} {run}`" in said


def test_reach_is_diagnosed(chosen, call, tmp_path):
    run = chosen.path
    said = call("diagnose", run, "--length", "8", "--batch", "2", "--out", tmp_path / "a.svg",
                "--data", tmp_path / "a.json")  # fmt: skip
    assert run.name in said
    figures = json.loads((tmp_path / "a.json").read_text())
    assert list(figures) == [run.name]
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


def test_a_report_has_the_run_and_misses_nothing(chosen, call, tmp_path):
    run = chosen.path
    call("report", run, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert run.name in page
    assert "could not" not in page


def test_its_unit_is_compared_with_others(chosen, call, tmp_path):
    task, kind, run = chosen.task, chosen.kind, chosen.path
    cells = f"gru,{run}" if (task, kind) == ("lm", "plain") else str(run)
    flags = ["--steps", "2", "--params", "2k", "--batch", "2", "--length", "5"]
    said = call("compare", "--cells", cells, *flags, "--out", tmp_path / "c.svg")
    rows = [line for line in said.splitlines() if line.startswith((f"{run} ", "gru "))]
    assert len(rows) == len(cells.split(","))
    if len(rows) == 2:  # the same unit of the same width
        assert rows[0].split()[1:4] == rows[1].split()[1:4]
    for row in rows:
        assert int(row.split()[2].replace(",", "")) <= 2_100


def test_texts_are_described(call, work):
    said = call("data", "describe", work / "text.txt")
    assert "4,000 characters" in said
    assert said == call("data", "describe", "--data", work / "text.txt")
    assert "expected one text" in call("data", "describe", "a", "--data", "b", code=2)
