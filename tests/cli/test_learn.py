"""`metarnn learn`: from data to a study, whatever the task; stopped, it goes on to the same end."""

import io
import json
import re
import signal
import time
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest
from torch import nn

from metarnn.cli import setup
from metarnn.cli.learning import Asked, Learning
from metarnn.cli.main import main
from metarnn.report.write import page
from metarnn.report.materials import gather
from metarnn.runs.tasks import open_run
from metarnn.search.problem import Problem
from metarnn.tasks.look import look
from tests.helpers.process import start

# Nothing is compiled for a few updates.
EAGER = """
from metarnn.cli import main, setup
plain = setup.settings
setup.settings = lambda found: {**plain(found), "engine": "eager"}
"""
# All that the clock would decide.
FIXED = ["--steps", "4", "--seeds", "1", "--candidates", "4", "--params", "6k", "--device", "cpu"]
FAST = ["--minutes", "0.02", *FIXED]
UNITS = {"found", "lstm", "gru", "best of random"}


def make_quick(patch):
    """Nothing to compile, and of forecasters one, not eight."""
    plain = setup.settings

    def quick(found):
        one = {"members": 1} if found.task == "forecasting" else {}
        return {**plain(found), "engine": "eager", **one}

    patch.setattr(setup, "settings", quick)


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    make_quick(monkeypatch)


def learned(data, out):
    return main(["learn", str(data), "--out", str(out), *FAST])


def started(data, out, *more):
    """The same in a process of its own."""
    arguments = ["learn", str(data), "--out", str(out), *FAST, *more]
    return start("-c", f"{EAGER}\nimport sys\nsys.exit(main.main({arguments!r}))")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "text.txt"
    file.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    return file


@pytest.fixture(scope="module")
def study(text, tmp_path_factory):
    """A study of the text, which was never stopped, and what it said."""
    out = tmp_path_factory.mktemp("studies") / "study"
    said, shown = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(shown):
        make_quick(patch)
        assert learned(text, out) == 0, shown.getvalue()
    return out, said.getvalue(), shown.getvalue()


@pytest.fixture
def pairs(tmp_path):
    file = tmp_path / "pairs.tsv"
    words = [f"{a}{b}" for a in "abcdefgh" for b in "ijklmnop"]
    file.write_text("\n".join(f"{a} {b}\t{b} {a}" for a in words for b in words[:4]))
    return file


@pytest.fixture
def waves(tmp_path):
    file = tmp_path / "waves.ts"
    rows = [f"{','.join(str(k * (t % 3)) for t in range(8))}:{'ab'[k % 2]}" for k in range(60)]
    file.write_text("@problemName waves\n@data\n" + "\n".join(rows) + "\n")
    return file


@pytest.fixture
def sales(tmp_path):
    file = tmp_path / "sales.csv"
    rows = [f"2020-{1 + k // 28:02}-{1 + k % 28:02},{k % 7}.5" for k in range(12 * 28)]
    file.write_text("date,sales\n" + "\n".join(rows) + "\n")
    return file


@pytest.mark.medium
def test_a_text_becomes_a_study_whose_model_writes(study, capsys):
    out, said, shown = study
    assert "so the task is: lm" in shown
    assert "It writes:" in said
    about = json.loads((out / "learn.json").read_text())
    assert about["task"] == "lm"
    assert about["seeds"] == [0]
    assert re.fullmatch("[0-9a-f]{64}", about["data"]["sha256"])
    stages = [stage["name"] for stage in about["stages"]]
    named = ["simple rules", "measure", "search", "random", "verdict", "longer", "sample"]
    assert stages == named
    beaten = "A simple rule beats the model that was kept on the test split: 5-gram model"
    assert about["verdict"].startswith(beaten)
    assert f"\n{beaten}" in said
    assert page([gather(out)]).lead.startswith(beaten)
    assert (out / "baselines.json").exists()
    assert not list((out / "verdict").glob("*/baselines.json"))
    verdict = json.loads((out / "verdict.json").read_text())
    names = {row["name"] for row in verdict["rows"]}
    assert names - {name for name in names if name.startswith("meta ")} == UNITS
    assert len(names) == 5
    assert all(row["parameters"] <= 6000 for row in verdict["rows"])
    for file in ("search/cell.json", "search/search.json", "search/random", "metrics.jsonl"):
        assert (out / file).exists()
    main(["generate", str(out), "--length", "20", "--seed", "0"])
    main(["evaluate", str(out), "--device", "cpu"])
    scores = verdict["rows"][[row["name"] for row in verdict["rows"]].index(about["best"])]
    shown = capsys.readouterr().out
    assert f"{scores['scores'][0]['nll']:.6f}"[:6] in shown


@pytest.mark.medium
def test_every_training_of_a_verdict_is_a_run_with_its_own_scores(study):
    out, _, _ = study
    verdict = json.loads((out / "verdict.json").read_text())
    for row in verdict["rows"]:
        place = out / "verdict" / f"{row['name'].replace(' ', '-')}-0"
        run = open_run(place)
        job = run.entry.prepare(run.config, run.folder)
        scores = job.task.evaluate(run.weights(job.model), "test")
        assert scores["nll"] == pytest.approx(row["scores"][0]["nll"], rel=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize(
    "task",
    [pytest.param("translation", marks=pytest.mark.slow), "classification", "forecasting"],
)
def test_each_task_leaves_a_model_for_its_command(task, tmp_path, capsys, request, monkeypatch):
    name, command = {
        "translation": ("pairs", ["translate"]),
        "classification": ("waves", ["classify", "--data"]),
        "forecasting": ("sales", ["forecast"]),
    }[task]
    data, out = request.getfixturevalue(name), tmp_path / "study"
    assert learned(data, out) == 0
    assert f"so the task is: {task}" in capsys.readouterr().err
    about = json.loads((out / "learn.json").read_text())
    for run in (out, *(out / "verdict").iterdir()):
        assert open_run(run).config.cell.removeprefix("meta-") in ("lstm", "gru", "cell.json")
        if task == "translation":
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ai bj\n")))
            main(["translate", str(run)])
        else:
            flags = [str(data)] if "--data" in command else []
            main([command[0], str(run), *command[1:], *flags])
        assert capsys.readouterr().out
    assert about["best"] in {row["name"] for row in _rows(out)}


@pytest.mark.medium
def test_what_came_out_best_is_kept_of_a_longer_training(waves, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Learning, "_plan_longer", lambda *_: 60)
    assert learned(waves, tmp_path / "study") == 0
    assert "Trained once more, for 60 updates" in capsys.readouterr().out
    about = json.loads((tmp_path / "study" / "learn.json").read_text())
    assert about["best_run"].startswith("longer")
    assert {row["name"] for row in _rows(tmp_path / "study")} > UNITS
    assert open_run(tmp_path / "study").config.steps == 60


def test_the_size_is_that_of_the_models_of_the_verdict():
    """Those of a search may be smaller: forecasters have one member there, and several here."""
    unused: Any = None
    problem = Problem(
        weights=unused,
        structure=unused,
        whole=unused,
        model=lambda unit, width: nn.Linear(width, 1),
        final=lambda unit, width: nn.Linear(width, 3),
    )
    asked = Asked(1.0, "", 0, 0, 0, 0, "cpu")
    learning = Learning(unused, unused, unused, problem, unused, unused, asked)
    assert learning._size(16) == 3 * 16 + 3


def test_few_labelled_examples_have_some_for_validation(waves):
    """Or what was learned by heart best would be kept."""
    assert setup.settings(look(str(waves)))["split"] == "64/16/20"


def _rows(out):
    return json.loads((out / "verdict.json").read_text())["rows"]


@pytest.mark.medium
def test_interrupted_then_killed_it_goes_on_to_the_same_verdict(study, text, tmp_path):
    whole, stopped = study[0], tmp_path / "stopped"
    said = signalled(started(text, stopped), stopped / "search" / "checkpoints", signal.SIGINT)
    assert f"metarnn learn --resume --out {stopped}" in said
    assert "Traceback" not in said
    again = started(text, stopped, "--resume")
    signalled(again, stopped / "verdict" / "lstm-0", signal.SIGKILL)
    main(["learn", "--resume", "--out", str(stopped)])
    assert _rows(stopped) == _rows(whole)
    first, second = (json.loads((p / "learn.json").read_text()) for p in (whole, stopped))
    assert first["verdict"] == second["verdict"]


def signalled(process, folder, number):
    """Stop a process once there is something in a folder; what it said."""
    while not (folder.exists() and any(folder.iterdir())) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=100)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    return said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--minutes", "0"], "a number above 0"),
        (["--task", "lm", "--params", "zero"], "a number of parameters"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(flags, message, text, tmp_path, capsys):
    assert main(["learn", str(text), "--out", str(tmp_path / "study"), *flags]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_with_a_study_is_not_begun_again(text, tmp_path, capsys):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "learn.json").write_text("{}")
    assert learned(text, tmp_path / "study") == 2
    assert "--resume" in capsys.readouterr().err


DAMAGED = {
    "no JSON": "{",
    "no object": "[1]",
    "no budget": '{"stages": []}',
    "a task that nobody knows": '{"stages": [], "task": "x", "budget": {"minutes": 1}}',
    "a budget of anything": '{"stages": [], "task": "lm", "budget": {"minutes": 1, "x": 2}}',
    "time without end": '{"stages": [{"name": "a", "seconds": 1e999}], "budget": {"minutes": 1}}',
    "half a plan": '{"stages": [], "budget": {"minutes": 1}, "plan": {"parameters": 9}}',
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_study_that_is_damaged_is_refused_by_the_name_of_its_file(what, tmp_path, capsys):
    (tmp_path / "learn.json").write_text(DAMAGED[what])
    assert main(["learn", "--resume", "--out", str(tmp_path)]) == 2
    assert str(tmp_path / "learn.json") in capsys.readouterr().err


def test_resume_takes_the_latest_unfinished_study_and_refuses_without_one(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for name, about in {"zh": "{", "done": '{"best_run": "verdict/gru-0"}'}.items():
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "learn.json").write_text(about)
    (tmp_path / "runs/zh/learn.json").write_text('{"stages": []}')
    assert main(["learn", "--resume"]) == 2
    assert "runs/zh/learn.json is damaged" in capsys.readouterr().err  # it was the one opened
    (tmp_path / "runs/zh/learn.json").unlink()
    assert main(["learn", "--resume"]) == 2
    assert "no unfinished study" in capsys.readouterr().err
    assert not (tmp_path / "runs/learn").exists()


@pytest.mark.medium
def test_a_finished_study_has_no_checkpoints_and_says_what_it_decided(study):
    out, _, shown = study
    assert not list(out.rglob("last.safetensors"))
    decisions = json.loads((out / "learn.json").read_text())["decisions"]
    assert {each["stage"] for each in decisions} == {"longer", "verdict"}
    page = (out / "report.html").read_text()
    for each in decisions:
        assert each["reason"] in shown
        assert each["reason"].partition("--")[0] in page


def test_a_command_that_fails_leaves_no_folder(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["learn", str(text), "--params", "12q"]) == 2
    assert not (tmp_path / "runs").exists()
