"""No message sends anybody to a flag that is not there."""

import ast
from pathlib import Path

import pytest

import metarnn
from metarnn.cli.flags import FLAG, elsewhere, flags
from metarnn.cli.main import COMMANDS, TASKED, main
from metarnn.runs.tasks import TASKS

EVERY = [name for name in COMMANDS if name not in TASKED] + [f"train {task}" for task in TASKS]
EVERY.append("search lm")
# Of other programs and of style sheets; another name of a flag.
FOREIGN = {"version", "no-deps", "v", "install", "tyro-write-completion", "delay"}
FOREIGN |= {"format", "porcelain"}  # of git


def messages():
    """The texts of all raised errors and refusals, by file."""
    for path in sorted(Path(metarnn.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and "--" in node.value
            ):
                yield path.name, node.value


def test_every_flag_in_a_text_is_one_of_some_command():
    known = set().union(*(flags(command) for command in EVERY)) | FOREIGN
    named = {(file, flag) for file, text in messages() for flag in FLAG.findall(text)}
    assert len(named) > 30
    assert not {(f, n) for f, n in named if n not in known and n.removeprefix("no-") not in known}


@pytest.mark.parametrize("command", ["learn", "evaluate", "forecast", "train forecasting"])
def test_flags_of_another_command_are_named_with_it(command):
    said = elsewhere(command, "'a' is no number. Name it with --static or --series.")
    own = command == "train forecasting"
    assert said == ("" if own else
        " (--static and --series are flags of `metarnn train forecasting`.)")  # fmt: skip
    assert elsewhere(command, "there is `metarnn train lm --level byte`") == ""


def test_an_error_names_the_command_of_a_flag(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("day,a\n2020-01-01,x\n2020-01-02,y\n")
    call = ["train", "forecasting", "--data", str(tmp_path / "a.csv"), "--out", str(tmp_path / "r")]
    assert main(call) == 2
    assert "are flags of" not in capsys.readouterr().err
