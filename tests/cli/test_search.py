"""`metarnn search lm` from the command line."""

import json
from statistics import fmean

import pytest

from metarnn.cli.main import main
from metarnn.graph import GraphCell, read
from metarnn.runs import rivals, searched, tasks
from metarnn.search import Genotype

TINY = [
    "--candidate-steps", "2", "--population", "2", "--tournament", "1", "--polish", "1",
    "--finalists", "1", "--finalist-steps", "2", "--random-units", "2", "--seeds", "2",
    "--verdict-steps", "2", "--search-width", "4", "--params", "3k", "--embedding", "4",
    "--batch", "4", "--length", "8", "--device", "cpu", "--split", "80/10/10",
    "--engine", "eager",
]  # fmt: skip


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    return file


@pytest.mark.medium
def test_a_search_ends_with_a_cell_a_picture_and_a_verdict(text, tmp_path, capsys):
    out = tmp_path / "run"
    flags = ["--data", str(text), "--out", str(out), "--steps", "4", *TINY]
    assert main(["search", "lm", *flags]) == 0
    said = capsys.readouterr().out
    for name in ("found", "lstm", "gru", "best of random"):
        assert f"\n{name} " in said
    assert "The found unit" in said
    verdict = json.loads((out / "verdict.json").read_text())
    assert [len(row["scores"]) for row in verdict["rows"]] == [2] * 4
    assert "A simple rule beats the found unit on the test split: 5-gram" in said
    assert said.index("A simple rule") < said.index("trained from scratch")
    mean = fmean(each["bpc"] for each in verdict["rows"][0]["scores"])
    beside = said.partition("beside simple rules, on the test split:")[2].splitlines()
    assert [line.split()[:2] for line in beside if line.strip().startswith("found")] == [
        ["found", f"{mean:.4f}"]
    ]
    assert all(row["parameters"] <= 3000 for row in verdict["rows"])
    about = json.loads((out / "search.json").read_text())
    assert Genotype.parse(about["unit"], about["bias"]).useful
    assert GraphCell(read(out / "cell.json")).hidden_size == 4
    assert (out / "cell.svg").read_text().startswith("<svg")

    assert main(["cell", "show", str(out / "cell.json"), "--hidden-size", "7"]) == 0
    assert "h 7" in capsys.readouterr().out
    train = ["--cell", str(out / "cell.json"), "--params", "9k", "--steps", "2"]
    more = [
        "--engine",
        "eager",
        "--out",
        str(tmp_path / "trained"),
        "--batch",
        "4",
        "--length",
        "8",
        "--embedding",
        "4",
    ]
    assert main(["train", "lm", "--data", str(text), *train, *more]) == 0
    config = (tmp_path / "trained" / "config.toml").read_text()
    width = int(config.split("\nwidth = ")[1].split()[0])
    assert GraphCell(read(tmp_path / "trained" / "cell.json")).hidden_size == width > 7

    capsys.readouterr()
    assert main(["search", "lm", *flags, "--resume"]) == 0  # nothing is left to be done
    assert json.loads((out / "verdict.json").read_text()) == verdict


@pytest.mark.medium
def test_what_other_processes_do_is_what_this_one_would(text, tmp_path, capsys):
    # Units at random do not depend on how many are proposed ahead.
    data = ["--data", str(text), "--steps", "4", *TINY, "--strategy", "random", "--seeds", "1"]
    others, alone = tmp_path / "others", tmp_path / "alone"
    assert main(["search", "lm", *data, "--workers", "1", "--out", str(others)]) == 0
    alone.mkdir()
    for name in ("config.toml", "split.json"):
        (alone / name).write_text((others / name).read_text())
    rivals.train("lm", alone)  # as beside a search on a GPU
    capsys.readouterr()
    assert main(["search", "lm", *data, "--out", str(alone), "--resume"]) == 0
    said = "".join(capsys.readouterr())
    assert "found, seed 0: nll" in said
    assert "lstm, seed 0: nll" not in said  # it is trained already
    found = [json.loads((out / "search.json").read_text()) for out in (others, alone)]
    assert found[0]["unit"] == found[1]["unit"]
    assert found[0]["finalists"] == pytest.approx(found[1]["finalists"], rel=1e-5)
    rows = [json.loads((out / "verdict.json").read_text())["rows"] for out in (others, alone)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--split", "90/10"], "one with a test"),
        (["--data", "-", "--workers", "2"], "each of them reads it"),
        (["--steps", "4", "--slots", "lin", "--activations", "relu"], "Widen it"),
        (["--slots", "mix", "lin"], "first a lin"),
        (["--start-from", "lstmm"], "Did you mean 'lstm'"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_a_line(flags, message, text, tmp_path, capsys):
    call = ["search", "lm", "--data", str(text), "--out", str(tmp_path / "run"), *TINY, *flags]
    assert main(call) == 2
    said = capsys.readouterr().err
    assert message in said


@pytest.mark.medium
def test_another_process_refuses_data_that_have_changed_since_the_search_began(text, tmp_path):
    data = ["--data", str(text), "--steps", "4", *TINY, "--strategy", "random", "--seeds", "1"]
    out = tmp_path / "run"
    assert main(["search", "lm", *data, "--out", str(out)]) == 0
    entry = tasks.find("lm")
    own = entry.kind(data=str(text), split="80/10/10", batch=4, length=8, embedding=4)
    assert searched.verified_problem("lm", own, 0.25, out).held_out == "test"
    text.write_text(text.read_text().replace("lazy", "busy"))
    with pytest.raises(ValueError, match=r"has changed since .* examples in test, train, valid"):
        searched.verified_problem("lm", own, 0.25, out)
    with pytest.raises(ValueError, match="has changed since"):
        rivals.train("lm", out)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["darts", "written"])
def test_a_mixture_survives_the_default_settings(strategy, tmp_path):
    """Without bounds on its state the mixture of `darts` was lost after 110 updates."""
    rest = ["--candidate-steps", "1", "--polish", "0", "--finalists", "1", "--finalist-steps", "1"]
    verdict = ["--random-units", "1", "--verdict-steps", "1", "--seeds", "1", "--params", "20k"]
    flags = ["--strategy", strategy, "--minutes", "0", "--steps", "200", "--out", str(tmp_path)]
    assert main(["search", "lm", *flags, *rest, *verdict]) == 0
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["structure_loss"] < lines[0]["structure_loss"] < 3
