"""`metarnn learn`: from data to a study, whatever the task; stopped, it goes on to the same end."""

import io
import json
import re
import shlex
import signal
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import metarnn
from metarnn import cells, graph
from metarnn.cli.main import main
from metarnn.report.materials import gather
from metarnn.report.write import page
from metarnn.runs import tasks
from metarnn.runs.tasks import open_run
from metarnn.study import setup
from metarnn.study.contenders import GROWING, GROWN, GRU, PORTFOLIOS, Contender
from metarnn.study.learn import Options, _Learning, configured, learn
from metarnn.study.study import Study
from metarnn.tasks import classification
from metarnn.tasks.look import look
from metarnn.training import config
from metarnn.training.progress import SILENT
from tests.helpers.process import start

# Nothing is compiled for a few updates.
EAGER = """
from metarnn.cli import main
from metarnn.study import setup
plain = setup.settings
setup.settings = lambda found: {**plain(found), "engine": "eager"}
"""
# All that the clock would decide.
FAST = ["--steps", "12", "--contenders", "2", "--params", "6k", "--device", "cpu"]


def make_quick(patch):
    """Nothing to compile, and of forecasters one, not eight."""
    plain = setup.settings

    def quick(finding):
        one = {"members": 1} if finding.task == "forecasting" else {}
        return {**plain(finding), "engine": "eager", **one}

    patch.setattr(setup, "settings", quick)


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    make_quick(monkeypatch)


def learned(data, out, *more):
    return main(["learn", str(data), "--out", str(out), *FAST, *more])


# Waits for a signal of the test after the first file in a folder, however busy the machine is.
WAIT = """
import os, signal
rename = os.replace

def rename_and_wait(source, target, *rest, **options):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    rename(source, target, *rest, **options)
    if str(target).startswith(FOLDER):
        os.replace = rename
        signal.sigwait({signal.SIGINT})
        os.kill(os.getpid(), signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)

os.replace = rename_and_wait
"""


def started(data, out, waits_for, *more):
    """The same in a process of its own, which waits for a signal."""
    arguments = ["learn", str(data), "--out", str(out), *FAST, *more]
    head = f"FOLDER = {str(waits_for)!r}\n{WAIT}\n{EAGER}"
    return start("-c", f"{head}\nimport sys\nsys.exit(main.main({arguments!r}))")


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
    assert re.fullmatch("[0-9a-f]{64}", about["data"]["sha256"])
    assert [each["name"] for each in about["stages"]] == ["data", "simple rules", "race", "account"]
    beaten = "A simple rule beats the model that was kept on the test split: 5-gram model"
    assert about["verdict"].startswith(beaten)
    assert f"\n{beaten}" in said
    assert page([gather(out)]).lead.startswith(beaten)
    assert not list((out / "race").glob("*/baselines.json"))
    assert set(about["contenders"]) == set(about["race"]["contenders"])
    main(["generate", str(out), "--length", "20", "--seed", "0"])
    capsys.readouterr()
    main(["evaluate", str(out), "--device", "cpu"])
    assert f"{about['scores']['nll']:.6f}"[:7] in capsys.readouterr().out


@pytest.mark.medium
def test_the_study_says_of_its_model_what_the_model_scores(study):
    known = Study.load(study[0])
    scores = known.job.task.evaluate(known.model, known.about["split"])
    assert scores["nll"] == pytest.approx(known.scores["nll"], rel=1e-6)
    assert known.best in known.summary
    assert f"{scores['nll']:.4f}" in known.summary


@pytest.mark.medium
def test_steps_make_a_study_exactly_reproducible(study, text, tmp_path):
    assert learned(text, tmp_path / "again") == 0
    first, second = ((p / "model.safetensors").read_bytes() for p in (study[0], tmp_path / "again"))
    assert first == second
    assert Study.load(study[0]).curves == Study.load(tmp_path / "again").curves


@pytest.mark.medium
@pytest.mark.parametrize("task", ["translation", "classification", "forecasting"])
def test_each_task_leaves_a_model_for_its_command(task, tmp_path, capsys, request, monkeypatch):
    name, command = {
        "translation": ("pairs", ["translate"]),
        "classification": ("waves", ["classify", "--data"]),
        "forecasting": ("sales", ["forecast"]),
    }[task]
    data, out = request.getfixturevalue(name), tmp_path / "study"
    assert learned(data, out) == 0
    assert f"so the task is: {task}" in capsys.readouterr().err
    if task == "translation":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ai bj\n")))
        main(["translate", str(out)])
    else:
        main([command[0], str(out), *command[1:], *([str(data)] if command[1:] else [])])
    assert capsys.readouterr().out
    known = Study.load(out)
    if task == "translation":
        assert len(known.translate(["ai bj", "bj ai"])) == 2
    if task == "classification":
        rows = [np.zeros((8, 1)), np.arange(8) % 3]
        assert set(known.predict(rows)) <= {"a", "b"}
        np.testing.assert_allclose([p.sum() for p in known.predict_proba(rows)], 1, rtol=1e-5)
    if task == "forecasting":
        assert [row["series"] for row in known.forecast()] == ["sales"] * len(known.forecast())


@pytest.mark.medium
def test_python_does_what_the_command_does(study, text, tmp_path):
    options = {"steps": 12, "contenders": 2, "params": "6k", "device": "cpu"}
    made = metarnn.learn(str(text), out=tmp_path / "study", progress=SILENT, **options)
    assert made.scores == Study.load(study[0]).scores
    assert len(made.generate("the", length=10, seed=1)) >= 10
    assert made.report().read_text("utf-8").startswith("<!doctype html>")
    copy = made.save(tmp_path / "copy")
    assert copy.generate("the", length=10, seed=1) == made.generate("the", length=10, seed=1)
    assert made.best in made._repr_html_()


@pytest.mark.medium
def test_units_of_the_user_take_part(text, tmp_path):
    """A file with a graph, and a class; each is the first to try."""
    file = tmp_path / "mine.json"
    graph.save(graph.trace_cell(cells.MinGRU(4, 4)), file)
    made = learn(
        str(text), out=tmp_path / "study", steps=8, contenders=2, params="6k",
        units=[file, cells.Elman], progress=SILENT,
    )  # fmt: skip
    assert made.about["race"]["contenders"] == ["mine", "elman"]
    assert open_run(tmp_path / "study").config.cell.endswith(f"{made.best}.json")
    (tmp_path / "study" / "units").rename(tmp_path / "gone")  # the model has a copy of its own
    assert made.model is not None


@pytest.mark.medium
def test_units_take_part_by_their_names(text, tmp_path):
    assert learned(text, tmp_path / "study", "--unit", "found/ptb-products", "meta-lstm") == 0
    known = Study.load(tmp_path / "study")
    assert known.about["race"]["contenders"] == ["ptb-products", "meta-lstm"]
    assert set(known.curves) == {"ptb-products", "meta-lstm"}


def test_a_study_that_was_stopped_early_is_regularised_once(text, tmp_path):
    """Between the choice of its dropout and the race, too."""
    entry, study = tasks.find("lm"), Study(tmp_path / "study")
    study.path.mkdir()
    base = configured(entry, look(str(text)), Options(params="6k"))
    data = entry.load(base)
    plain = entry.job(base, data)
    options = Options(params="6k", steps=round(6 * plain.task.batches_per_epoch))
    dropouts = []
    for _ in range(2):
        begun = _Learning(study, entry, base, options, SILENT)
        if "base" in study.about:
            begun.base = config.from_keys(entry.kind, study.about["base"], "base")
        begun._regularise(plain)
        dropouts.append(begun.base.output_dropout)
    assert dropouts[0] == dropouts[1]
    assert 0 < dropouts[0] < base.output_dropout


def test_with_steps_no_time_of_a_clock_is_said_to_be_left(text, tmp_path, capsys):
    assert learned(text, tmp_path / "study", "--minutes", "500") == 0
    assert not re.search(r"\d:\d\d:\d\d left", capsys.readouterr().err)


@pytest.mark.medium
@pytest.mark.parametrize("wins", [False, True], ids=["out", "kept"])
def test_the_leader_of_a_long_study_may_grow(wins, text, tmp_path, monkeypatch):
    """A Mogrifier-GRU goes on from the GRU that led: both have the same curve up to there."""
    (grown, *_) = GROWN["lm"]
    faster = replace(grown, factors={"lr": 30.0 if wins else 1e-3})
    monkeypatch.setitem(GROWN, "lm", (faster,))
    slow = [Contender(f"GRU, lr × {by}", {"cell": "gru"}, {"lr": by}) for by in (1e-2, 1e-3)]
    monkeypatch.setitem(PORTFOLIOS, "lm", (GRU, *slow))
    study = learn(
        str(text), out=tmp_path / "study", minutes=GROWING, steps=60, params="6k", device="cpu",
        progress=SILENT,
    )  # fmt: skip
    first, second = study.about["race"]["rungs"]
    assert grown.name not in [row["name"] for row in first["standing"]]
    assert grown.name in [row["name"] for row in second["standing"]]
    assert (study.best == grown.name) == wins
    inherited = [point for point in study.curves[GRU.name] if point[0] <= first["until"]]
    assert inherited
    assert study.curves[grown.name][: len(inherited)] == inherited


@pytest.mark.medium
def test_a_comparison_trains_the_rivals_for_as_long_as_the_winner(text, tmp_path, capsys):
    assert learned(text, tmp_path / "study", "--compare") == 0
    known = Study.load(tmp_path / "study")
    rows = json.loads((tmp_path / "study" / "verdict.json").read_text())["rows"]
    assert rows[0]["name"] == known.best
    assert rows[0]["scores"][0]["nll"] == pytest.approx(known.scores["nll"], rel=1e-6)
    names = [row["name"] for row in rows[1:]]
    assert names == [
        *(f"{u} with the {w}'s settings" for u in ("GRU", "LSTM") for w in ("task", "winner")),
        "best of random",
    ]
    for folder in (tmp_path / "study" / "verdict").iterdir():
        assert open_run(folder).config.steps == 12
    assert "the comparison takes about" in capsys.readouterr().err
    assert "A full comparison" not in known.summary


def test_minutes_are_kept_whatever_an_evaluation_takes(text, tmp_path, monkeypatch):
    """Where scores take ten times as long as updates, and the test alone longer than all."""
    clock = {"now": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    from metarnn.tasks.language.task import LanguageTask

    loss, evaluate = LanguageTask.loss, LanguageTask.evaluate

    def slow_loss(self, *args):
        clock["now"] += 0.02
        return loss(self, *args)

    def slow_evaluate(self, model, split="valid"):
        clock["now"] += 0.1 * self.amount(split)
        return evaluate(self, model, split)

    monkeypatch.setattr(LanguageTask, "loss", slow_loss)
    monkeypatch.setattr(LanguageTask, "evaluate", slow_evaluate)
    monkeypatch.setattr(LanguageTask, "enough", 64)
    made = learn(str(text), minutes=1.0, params="6k", out=tmp_path / "study", progress=SILENT)
    assert 0.7 * 60 < clock["now"] <= 1.1 * 60
    (decision,) = [each for each in made.decisions if each["stage"] == "test"]
    assert "fixed sample" in decision["decision"]
    assert decision["decision"].removeprefix("scored on ") in made.summary
    assert made.rules is not None
    assert "a sample of the test split" in made.summary
    tokens = {row["tokens"] for row in made.rules.scores.values()}
    assert tokens == {made.scores["tokens"]}  # rules and model read the same
    assert made.rules.sentence(made.scores, "the model that was kept") in made.summary


def test_few_labelled_examples_have_some_for_validation(waves):
    """Or what was learned by heart best would be kept."""
    assert setup.settings(look(str(waves)))["split"] == "64/16/20"


@pytest.mark.parametrize("count", [60, 299, 300, 340, 380])
def test_contenders_are_never_chosen_by_what_they_were_trained_on(count, tmp_path):
    file = tmp_path / "waves.jsonl"
    rows = [json.dumps({"x": [k, k + 1], "label": "ab"[k % 2]}) for k in range(count)]
    file.write_text("\n".join(rows))
    own = setup.settings(look(str(file)))
    assert "valid" in classification.load(str(file), split=own.get("split", "auto")).parts


@pytest.mark.medium
def test_without_a_test_the_summary_says_that_validation_chose_the_model(text, tmp_path, capsys):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in ("train", "valid"):
        (folder / f"{name}.txt").write_text(text.read_text())
    assert learned(folder, tmp_path / "study") == 0
    assert (
        "on valid, which chose it, for there is no test" in Study.load(tmp_path / "study").summary
    )


class Unstable:
    def __init__(self, name, best):
        self.name, self.best, self.job = name, best, name

    def load(self):
        pass


@pytest.mark.parametrize(("unstable", "kept"), [("a", "b"), ("ab", "a"), ("", "a")])
def test_an_unstable_winner_gives_way_unless_all_are(unstable, kept, tmp_path, monkeypatch):
    monkeypatch.setitem(learn.__globals__, "instability", lambda job: job * (job in unstable))
    study = Study(tmp_path)
    learning = _Learning(study, None, None, Options(), SILENT)
    runners: list[Any] = [Unstable("b", 1.1), Unstable("a", 1.0)]
    study.decide("winner", "a is kept", "it led")
    race: Any = SimpleNamespace(trained=runners)
    assert learning._stable(race, runners[1]).name == kept
    (decision,) = [each for each in study.decisions if each["stage"] == "winner"]
    assert decision["decision"] == f"{kept} is kept"
    assert (decision["reason"] == "it led") == (not unstable)


@pytest.mark.medium
@pytest.mark.parametrize("place", ["race", "race/GRU/checkpoints"])
def test_interrupted_then_killed_it_goes_on_to_the_same_end(place, study, text, tmp_path):
    """Also by a signal that comes while a checkpoint is saved, after the last update of a rung."""
    whole, stopped = study[0], tmp_path / "stopped"
    said = signalled(text, stopped, stopped / place, signal.SIGINT)
    assert f"metarnn learn --resume --out {shlex.quote(str(stopped))}" in said
    assert "Traceback" not in said
    checkpoints = stopped / "race" / "GRU" / "checkpoints"
    signalled(text, stopped, checkpoints, signal.SIGKILL, "--resume")
    main(["learn", "--resume", "--out", str(stopped)])
    first, second = ((p / "model.safetensors").read_bytes() for p in (whole, stopped))
    assert first == second
    assert Study.load(whole).scores == Study.load(stopped).scores


def signalled(data, out, folder, number, *more):
    """Stop a process at the first file in a folder; what it said."""
    process = started(data, out, folder, *more)
    while not (folder.exists() and any(folder.iterdir())) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=100)
    assert process.returncode == (130 if number == signal.SIGINT else -number), said
    return said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--minutes", "0"], "a number above 0"),
        (["--task", "lm", "--params", "zero"], "a number of parameters"),
        (["--unit", "nothing.json"], "nothing.json"),
        (["--unit", "nothing"], "nothing"),
        (["--unit", "found/nothing"], "'ptb-products'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(flags, message, text, tmp_path, capsys):
    assert main(["learn", str(text), "--out", str(tmp_path / "study"), *flags]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "study").exists()


def test_a_folder_with_a_study_is_not_begun_again(text, tmp_path, capsys):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "learn.json").write_text("{}")
    assert learned(text, tmp_path / "study") == 2
    assert "--resume" in capsys.readouterr().err


ABOUT = {"version": 2, "seconds": 1.0, "task": "lm", "budget": {"minutes": 1}, "base": {}}
DAMAGED = {
    "no JSON": "{",
    "no object": "[1]",
    "an earlier version": json.dumps({**ABOUT, "version": 1}),
    "no budget": json.dumps({**ABOUT, "budget": {}}),
    "a task that nobody knows": json.dumps({**ABOUT, "task": "x"}),
    "a budget of anything": json.dumps({**ABOUT, "budget": {"minutes": 1, "x": 2}}),
    "time without end": json.dumps(ABOUT).replace("1.0", "1e999"),
    "a setting that nobody knows": json.dumps({**ABOUT, "base": {"x": 1}}),
    "a rung of nobody": json.dumps(
        {**ABOUT, "race": {"contenders": ["gru"], "rungs": [{"kept": ["x"]}], "finals": {}}}
    ),
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
    folder = tmp_path / "runs" / "done"
    folder.mkdir(parents=True)
    (folder / "learn.json").write_text('{"best": "gru"}')
    assert main(["learn", "--resume"]) == 2
    assert "no unfinished study" in capsys.readouterr().err
    (tmp_path / "runs" / "zh").mkdir()
    (tmp_path / "runs/zh/learn.json").write_text('{"version": 2}')
    assert main(["learn", "--resume"]) == 2
    assert "runs/zh/learn.json is damaged" in capsys.readouterr().err  # it was the one opened
    assert not (tmp_path / "runs/learn").exists()


@pytest.mark.medium
def test_a_finished_study_has_no_checkpoints_and_says_what_it_decided(study):
    out, _, shown = study
    assert not list(out.rglob("last.safetensors"))
    assert [path.parent for path in out.rglob("model.safetensors")] == [out]
    decisions = Study.load(out).decisions
    assert [each["stage"] for each in decisions][-1] == "winner"
    page = (out / "report.html").read_text()
    for each in decisions:
        assert each["reason"] in shown
        assert each["reason"].partition("--")[0] in page


def test_a_command_that_fails_leaves_no_folder(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["learn", str(text), "--params", "12q"]) == 2
    assert not (tmp_path / "runs").exists()


@pytest.mark.medium
def test_a_classifier_of_small_data_is_trained_again_on_all_but_the_test(
    waves, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(setup.EPOCHS, "classification", 1.0)
    monkeypatch.setitem(setup.UPDATES, "classification", 100)
    made = learn(str(waves), minutes=0.15, out=tmp_path / "study", device="cpu", progress=SILENT)
    assert made.best.endswith("refit")
    assert made.run.config.refit
    assert made.run.config.members > 1
    assert f"{made.run.config.members} members" in made.best
    assert "trained anew, on training and validation data" in made.summary
    assert set(made.curves) == set(made.about["race"]["contenders"])
    assert made.scores == made.job.task.evaluate(made.model, "test")
    assert made.predict([np.arange(8) % 3])[0] in ("a", "b")
    main(["evaluate", str(made.path), "--split", "valid", "--device", "cpu"])
    assert "was trained on the validation data as well" in capsys.readouterr().out


@pytest.mark.medium
def test_nothing_is_trained_on_the_data_that_its_score_is_of(waves, tmp_path, capsys):
    """Without a test part the validation data are held out."""
    folder = tmp_path / "given"
    folder.mkdir()
    for name in ("train", "valid"):
        (folder / f"{name}.ts").write_text(waves.read_text())
    entry = tasks.find("classification")
    config = entry.kind(data=str(folder / "train.ts"))
    job = entry.job(config, entry.load(config))
    assert "test" not in job.task.data.parts
    assert setup.refit("classification", job.task, entry.held_out(job)).ratio == 0
    asked = ["--data", str(folder / "train.ts"), "--refit", "--steps", "1", "--device", "cpu"]
    assert main(["train", "classification", "--out", str(tmp_path / "run"), *asked]) == 2
    assert "a part for the test" in capsys.readouterr().err
