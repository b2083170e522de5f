"""What `--help` shows can be typed, and a shell completes it."""

import re
import subprocess

import pytest

from metarnn.cli import completion
from metarnn.cli.main import COMMANDS, TASKED, main
from metarnn.cli.search import searchable
from metarnn.runs.tasks import TASKS

NAMES = [name for name in COMMANDS if name not in TASKED]
NAMES += [f"train {task}" for task in TASKS]
NAMES += ["search lm"]


def help_of(name: str, capsys) -> str:
    with pytest.raises(SystemExit) as left:
        main([*name.split(), "--help"])
    assert left.value.code == 0
    return capsys.readouterr().out


@pytest.mark.medium
@pytest.mark.parametrize("name", NAMES)
def test_help_has_examples_with_flags_that_there_are(name, capsys):
    lines = help_of(name, capsys).splitlines()
    examples = [line for line in lines if f"metarnn {name}" in line and "usage:" not in line]
    rest = "\n".join(line for line in lines if line not in examples)
    assert examples
    for example in examples:
        _, _, typed = example.partition(f"metarnn {name}")
        for flag in re.findall(r" (--[a-z0-9-]+)", typed):
            assert re.search(rf"{flag}[ ,]", rest), f"{flag} of `{example}`"


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("shell") / "metarnn.bash"
    with pytest.raises(SystemExit):
        completion.everything().cli(
            args=["--tyro-write-completion", "bash", str(path)], prog="metarnn"
        )
    return path


COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
_tyro_metarnn
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(script, *words: str) -> set[str]:
    call = ["bash", "-c", COMPLETE, "bash", str(script), "metarnn", *words]
    return set(subprocess.run(call, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.medium
def test_bash_completes_commands_flags_and_choices(script):
    assert {name.split()[0] for name in COMMANDS} <= completed(script, "")
    assert completed(script, "train", "fo") == {"forecasting"}
    assert set(TASKS) <= completed(script, "train", "")
    assert set(searchable()) <= completed(script, "search", "")
    assert completed(script, "train", "lm", "--ce") == {"--cell"}
    assert completed(script, "generate", "run", "--temp") == {"--temperature"}
    assert {"bptt", "rtrl"} <= completed(script, "train", "lm", "--gradient", "")
    assert completed(script, "bench", "g") == {"generated", "gradients"}


@pytest.mark.medium
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell_is_printed(shell, capsys):
    with pytest.raises(SystemExit) as left:
        main(["completion", shell])
    assert not left.value.code
    shown = capsys.readouterr().out
    assert all(f"{name.split()[0]}" in shown for name in COMMANDS)
    assert "--checkpoint-every" in shown
