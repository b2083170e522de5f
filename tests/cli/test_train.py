"""`metarnn train lm`, `evaluate` and `generate`, from a text to a text."""

import json
import shlex
import signal
import time
import tomllib

import pytest

from metarnn import cells, graph
from metarnn.cli.main import main
from metarnn.cli.train import parse
from metarnn.report.materials import gather
from metarnn.report.write import page
from metarnn.runs.lm import ENTRY, Config
from metarnn.runs.tasks import located
from metarnn.training import Folder, checkpoint
from tests.helpers.process import start

SMALL = (
    *("--width", "12", "--embedding", "6", "--batch", "4", "--length", "16", "--steps", "20"),
    *("--validate-every", "10", "--log-every", "5", "--output-dropout", "0.1", "--device", "cpu"),
)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    lines = [f"{k} bottles of beer on the wall, {k} bottles of beer.\n" for k in range(99, 0, -1)]
    (folder / "song.txt").write_text("".join(lines))
    return folder / "song.txt"


def train(text, out, *flags):
    return main(["train", "lm", "--data", str(text), "--out", str(out), *SMALL, *flags])


@pytest.fixture(scope="module")
def run(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "song"
    assert train(text, out) == 0
    return out


def test_a_run_is_a_folder_with_all_that_is_needed(run):
    names = sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file())
    assert names == [
        ".lock",
        "baselines.json",
        "cell.json",
        "checkpoints/best.safetensors",
        "checkpoints/last.safetensors",
        "config.toml",
        "ended.json",
        "metrics.jsonl",
        "model.json",
        "model.safetensors",
        "split.json",
        "vocabulary.json",
    ]
    config = tomllib.loads((run / "config.toml").read_text())
    assert config["task"] == "lm"
    assert (config["width"], config["output_dropout"]) == (12, 0.1)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "valid_bpc" in line] == [10, 20]


@pytest.mark.medium
def test_every_term_of_omega_is_logged_apart_and_the_model_is_found_again(text, tmp_path, capsys):
    names = ("phi", "deviation", "smooth", "spectral", "reconstruction")
    asked = [word for name in names for word in (f"--omega-{name}", "0.1")]
    meta = ("--model", "meta", "--context", "step", "--form", "scale", "--hyper", "4")
    assert train(text, tmp_path / "run", *meta, *asked) == 0
    first, *_ = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert all(json.loads(first)[f"omega_{name}"] > 0 for name in names)
    assert main(["evaluate", str(tmp_path / "run")]) == 0


def test_the_end_shows_the_score_beside_those_of_n_grams(text, tmp_path, capsys):
    assert train(text, tmp_path / "run") == 0
    printed = capsys.readouterr().out
    for word in ("test", "perplexity", "this model", "5-gram model"):
        assert word in printed
    _, first, *_ = printed[printed.index("ended after") :].splitlines()
    assert first.startswith("A simple rule beats this model on the test split: 5-gram model")
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["test_bpc (5-gram model (Kneser–Ney))"] < last["test_bpc"]
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.startswith(first)
    assert first in page([gather(tmp_path / "run")]).lead


def test_an_existing_run_is_refused_and_resumed_when_asked(run, text, tmp_path, capsys):
    assert train(text, run) == 2
    assert "--resume" in capsys.readouterr().err
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(text, whole, "--steps", "15", "--validate-every", "5")
    train(text, parts, "--steps", "10", "--validate-every", "5")
    assert main(["train", "lm", "--resume", "--out", str(parts), "--steps", "15"]) == 0
    ours, theirs = (checkpoint.load(Folder(out).last) for out in (whole, parts))
    assert all(w.equal(theirs["weights"][name]) for name, w in ours["weights"].items())


def test_a_run_cannot_be_resumed_as_another_model_and_is_left_as_it_was(text, tmp_path, capsys):
    out = tmp_path / "run"
    assert train(text, out) == 0
    before = {
        path: path.read_bytes()
        for path in out.rglob("*")
        if path.name != ".lock" and path.is_file()
    }
    assert main(["train", "lm", "--resume", "--out", str(out), "--width", "13"]) == 2
    assert "Was it trained with other settings?" in capsys.readouterr().err
    assert all(path.read_bytes() == content for path, content in before.items())


def table(output):
    """The rows of a table of scores, without the sentences around it."""
    rows = (line.split() for line in output.splitlines() if not line.startswith("  "))
    return {row[0]: row[1] for row in rows if len(row) == 2}


def test_evaluate_gives_the_score_of_the_training_whatever_the_batch(run, capsys):
    def scores(*flags):
        main(["evaluate", str(run), "--split", "valid", *flags])
        return table(capsys.readouterr().out)

    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = min(line["valid_nll"] for line in lines if "valid_nll" in line)
    found = scores()
    assert float(found["nll"]) == pytest.approx(best, abs=2e-6)
    assert scores("--batch", "7") == found
    assert "dynamic_nll" in scores("--dynamic")


def test_evaluate_reads_other_texts_with_characters_never_seen(run, tmp_path, capsys):
    (tmp_path / "other.txt").write_text("Σ snow ☃ and bottles of beer on the wall. " * 3)
    main(["evaluate", str(run), "--data", str(tmp_path / "other.txt"), "--split", "all"])
    found = table(capsys.readouterr().out)
    assert (found["tokens"], found["unknown"]) == ("126", "9")  # Σ, ☃, and d, thrice
    main(["evaluate", str(run), "--data", str(tmp_path / "other.txt")])  # of so short a text, 5%
    assert "unknown" in capsys.readouterr().out


def test_generate_writes_as_much_as_was_asked_for_the_same_with_the_same_seed(run, capsys):
    def written(*flags):
        main(["generate", str(run), "--length", "40", "--prompt", "9 bottles", *flags])
        return capsys.readouterr().out

    one = written("--seed", "1")
    assert one.startswith("9 bottles")
    assert len(one) == len("9 bottles") + 40 + 1
    assert written("--seed", "1") == one
    assert written("--seed", "2") != one
    assert written("--temperature", "0", "--seed", "1") == written("--temperature", "0")
    assert written("--top-k", "1", "--seed", "5") == written("--temperature", "0")


def test_generate_with_a_beam_finds_one_text_and_repeats_nothing_where_asked(run, capsys):
    def beam(*flags):
        main(["generate", str(run), "--length", "40", "--prompt", "9 bottles", "--beam", *flags])
        return capsys.readouterr().out

    assert beam("4") == beam("4")
    assert beam("4").startswith("9 bottles")
    assert len(beam("4")) == len("9 bottles") + 40 + 1
    text = beam("2", "--no-repeat", "3")[len("9 bottles") : -1]
    grams = [text[k : k + 3] for k in range(len(text) - 2)]
    assert len(set(grams)) == len(grams)


def test_generate_needs_the_run_alone_not_its_data(text, tmp_path, capsys):
    (tmp_path / "song.txt").write_text(text.read_text())
    train(tmp_path / "song.txt", tmp_path / "run")
    (tmp_path / "song.txt").unlink()
    capsys.readouterr()
    main(["generate", str(tmp_path / "run"), "--length", "5"])
    assert len(capsys.readouterr().out) >= 5


def test_a_cell_from_a_file_is_part_of_the_run(text, tmp_path, capsys):
    graph.save(graph.trace_cell(cells.GRU(3, 10)), tmp_path / "unit.json")
    assert train(text, tmp_path / "run", "--cell", str(tmp_path / "unit.json")) == 0
    (tmp_path / "unit.json").unlink()
    capsys.readouterr()
    main(["generate", str(tmp_path / "run"), "--length", "5"])
    assert len(capsys.readouterr().out) >= 5


def test_flags_change_the_file_which_changes_the_preset(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("lr = 0.5\nwidth = 77\n")
    found = parse(ENTRY, ["--config", str(path), "--lr", "0.25", "--seed=3"])
    assert (found.lr, found.width, found.seed) == (0.25, 77, 3)
    first = ENTRY.presets[next(iter(ENTRY.presets))]
    assert found.steps == first.get("steps", Config().steps)


def test_a_limit_given_takes_the_place_of_all_others(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("minutes = 3.0\nepochs = 2.0\n")
    flags = ["--config", str(path)]
    found = parse(ENTRY, [*flags, "--steps=7"])
    assert (found.steps, found.epochs, found.minutes) == (7, 0.0, 0.0)
    found = parse(ENTRY, [*flags, "--lr", "1"])
    assert (found.epochs, found.minutes) == (2.0, 3.0)


def test_the_config_of_a_run_repeats_it(run, text, tmp_path):
    again = tmp_path / "again"
    flags = ["--config", str(run / "config.toml"), "--out", str(again)]
    assert main(["train", "lm", *flags]) == 0
    assert (again / "config.toml").read_text() == (run / "config.toml").read_text()
    ours, theirs = (checkpoint.read_weights(Folder(out).model) for out in (run, again))
    assert all(w.equal(theirs[name]) for name, w in ours.items())


def test_params_solves_for_the_width(text, tmp_path, capsys):
    assert train(text, tmp_path / "run", "--params", "5k", "--steps", "1") == 0
    weights = checkpoint.read_weights(tmp_path / "run" / "model.safetensors")
    assert 4000 < sum(w.numel() for w in weights.values()) <= 5000


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["train", "lx"], "expected one of 'lm'"),
        (["train", "lm", "--preset", "cahr-small"], "Did you mean 'char-small'"),
        (["train", "lm", "--config", "nowhere.toml"], "no file nowhere.toml"),
        (["train", "lm", "--data", "nowhere.txt"], "nowhere.txt"),
        (["train", "lm", "--device", "gpu"], "device='gpu'"),
        (["train", "lm", "--cell", "lstn", "--steps", "1"], "Did you mean 'lstm'"),
        (["train", "lm", "--out", "/proc/x", "--steps", "1"], "cannot be written to"),
        (["evaluate", "nowhere"], "nowhere is no run"),
        (["generate", "nowhere"], "nowhere is no run"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(flags) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())  # and nothing was begun


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 20])
def test_an_empty_a_tiny_and_a_binary_file_are_refused(content, tmp_path, capsys):
    (tmp_path / "data").write_bytes(content)
    assert train(tmp_path / "data", tmp_path / "run") == 2
    assert "metarnn train lm: data" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_help_has_every_flag_with_a_word_of_what_it_does(capsys):
    with pytest.raises(SystemExit):
        main(["train", "lm", "--help"])
    shown = capsys.readouterr().out
    asked = ("data", "out", "cell", "params", "steps", "epochs", "minutes", "batch", "seed")
    for flag in (*asked, "engine", "device", "resume"):
        assert f"--{flag} " in shown or f"--{flag}," in shown
    main(["train"])
    assert "lm" in capsys.readouterr().out


@pytest.mark.medium
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_saves_and_says_how_to_go_on(text, tmp_path, number):
    out = tmp_path / "run"
    flags = [*SMALL, "--steps", "100000", "--save-every", "5"]
    call = ["-m", "metarnn", "train", "lm", "--data", str(text), "--out", str(out)]
    process = start(*call, *flags)
    try:
        while not Folder(out).last.exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    last = errors.splitlines()[-1]
    step = checkpoint.load(Folder(out).last)["position"]["step"]
    assert f"{number.name}: saved at step {step}." in last
    assert f"metarnn train lm --resume --out {out}" in last
    assert "Traceback" not in errors


@pytest.mark.parametrize("preset", ENTRY.presets)
def test_every_preset_is_a_configuration_that_ends(preset):
    found = parse(ENTRY, ["--preset", preset])
    assert isinstance(found, Config)
    assert found.steps or found.epochs or found.minutes


@pytest.mark.medium
@pytest.mark.parametrize(("cell", "rule"), [("mingru", "rtrl"), ("lstm", "rflo")])
def test_online_learning_updates_at_every_token(cell, rule, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abcabcab " * 400)
    flags = f"--data {text} --online --cell {cell} --width 8 --embedding 0 --batch 2 --lr 0.01"
    out = tmp_path / "run"
    assert main(["train", "lm", *flags.split(), "--steps", "400", "--out", str(out)]) == 0
    config = tomllib.loads((out / "config.toml").read_text())
    assert (config["length"], config["gradient"]) == (1, rule)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").open()]
    assert max(line["tokens"] for line in lines if "tokens" in line) == 800
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0] / 2


def test_online_learning_refuses_rules_that_look_back(tmp_path, capsys):
    flags = ["--online", "--gradient", "tbptt", "--steps", "1", "--out", str(tmp_path / "run")]
    assert main(["train", "lm", *flags]) == 2
    assert "gradient='tbptt': expected one of rtrl, snap-1" in capsys.readouterr().err


def test_resume_without_a_folder_takes_the_latest_unfinished_run_of_the_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables = {"zh": "lm", "ended": "lm", "other": "forecasting"}
    for name, task in tables.items():
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(f'task = "{task}"\nsteps = 7\n')
    (tmp_path / "runs/ended/ended.json").write_text("{}")
    chosen = parse(ENTRY, ["--resume"])
    assert (chosen.out, chosen.steps) == ("runs/zh", 7)
    (tmp_path / "runs/zh/ended.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="no unfinished run of lm"):
        parse(ENTRY, ["--resume"])


@pytest.mark.medium
def test_a_run_is_used_from_any_working_directory(tmp_path, monkeypatch, capsys):
    home = tmp_path / "at home"
    home.mkdir()
    (home / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    monkeypatch.chdir(home)
    flags = ["--steps", "2", "--width", "4", "--batch", "2", "--length", "8", "--engine", "eager"]
    assert main(["train", "lm", "--data", "text.txt", "--out", "a run", *flags]) == 0
    next_step = capsys.readouterr().out.splitlines()[-1].partition(": ")[2]
    assert main(shlex.split(next_step)[1:]) == 0
    printed = capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "at home/a run"]) == 0
    assert capsys.readouterr().out == printed


def test_data_are_located_whatever_names_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "pairs.de", "pairs.en", "dates"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    for data in ("a.txt", "*.txt", "pairs", "folder"):
        assert located(data) == str(tmp_path / data)
    for data in ("pydoc", "dates", "-", "hf:name", "missing.txt"):
        assert located(data) == data
