"""What the README says works: its Python runs, its commands run."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
SHOWN = {"text", "toml", "json"}  # fences that only show something


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its section's heading, where it begins, what it holds."""

    language: str
    section: str
    line: int
    text: str

    def __str__(self) -> str:
        heading = re.sub(r"\W+", "-", self.section.lower()).strip("-")
        return f"{heading or 'top'}-line-{self.line}"


def blocks(readme: str) -> list[Block]:
    found: list[Block] = []
    section, language, begin = "", None, 0
    lines = readme.splitlines()
    for number, line in enumerate(lines):
        if line.lstrip().startswith("```"):  # a block inside a list is indented
            if language is None:
                language, begin = line.strip("` "), number + 1
            else:
                text = dedent("\n".join(lines[begin:number]))
                found.append(Block(language, section, begin + 1, text))
                language = None
        elif language is None and line.startswith("## "):
            section = line[3:]
    assert language is None, f"README.md:{begin}: this fence is never closed"
    return found


def commands(text: str) -> list[str]:
    """The command lines of a shell block, continued lines joined, comments left out."""
    lines = text.replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if shlex.split(line, comments=True)]


BLOCKS = blocks(README.read_text(encoding="utf-8")) if README.exists() else []
PYTHON = [block for block in BLOCKS if block.language == "python"]
COMMANDS = [block for block in BLOCKS if block.language == "sh"]
# Training is cut short: what is checked is that the command is understood and runs.
SHORT = ("--steps", "2", "--batch", "4", "--width", "8", "--device", "cpu")
SHORT_OF = {"lm": ("--length", "8")}
SEARCH = (
    "--data", str(README), "--split", "80/10/10",
    "--steps", "2", "--candidate-steps", "1", "--population", "2", "--tournament", "1",
    "--polish", "0", "--finalists", "1", "--finalist-steps", "1", "--random-units", "1",
    "--seeds", "1", "--verdict-steps", "1", "--search-width", "4", "--params", "20k",
    "--batch", "4", "--length", "8", "--device", "cpu", "--engine", "eager",
)  # fmt: skip


def environment() -> dict[str, str]:
    # Run by make itself, the tests must not hand its flags on to the make they start.
    inherited = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return inherited | {"PYTHONPATH": path}


def run(command: str, elsewhere: Path) -> None:
    """Run one command of the README; of `make`, check that it could be run."""
    said, _, command = command.rpartition(" | ")  # what `echo` says goes in
    program, *arguments = shlex.split(command, comments=True)
    if program == "make":
        call, where = ["make", "-n", *arguments], ROOT
    elif program == "metarnn":
        short = {"train": SHORT, "search": SEARCH}.get(arguments[0], ())
        short += SHORT_OF.get(arguments[1], ()) if arguments[0] == "train" else ()
        call, where = [sys.executable, "-m", "metarnn", *arguments, *short], elsewhere
    else:
        pytest.fail(
            f"README.md says to run `{command}`, and this test does not know how to check that: "
            "teach it the command, or mark the block as text if it is not meant to be typed."
        )
    done = subprocess.run(
        call,
        cwd=where,
        env=environment(),
        capture_output=True,
        text=True,
        input=said.removeprefix("echo "),
    )
    assert done.returncode == 0, f"`{command}` fails:\n{done.stdout}{done.stderr}"


def execute(block: Block, earlier: list[Block]) -> dict[str, Any]:
    """Run a block after those before it in its section, in one namespace; return that."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for each in [*earlier, block]:
        # The empty lines make a traceback point at the line in the README.
        code = compile("\n" * (each.line - 1) + each.text, str(README), "exec")
        exec(code, namespace)
    return namespace


def test_the_readme_exists_and_shows_how_to_use_the_library():
    assert README.exists()
    assert PYTHON
    assert COMMANDS


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_says_what_it_is(block):
    assert block.language in {"python", "sh", *SHOWN}, (
        f"README.md:{block.line - 1}: ```{block.language} is neither run nor known as something "
        f"only shown; use python or sh for what can be run, or one of {sorted(SHOWN)}"
    )


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_blocks_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Run again for each block of a section: workers that share the tests share no namespace.
    same_section = [each for each in PYTHON if each.section == block.section]
    execute(block, [each for each in same_section if each.line < block.line])


@pytest.mark.medium
@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_commands_run(block, tmp_path):
    for command in commands(block.text):  # one after the other: a later one may need an earlier
        run(command, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first time, it installs
def test_make_demo_really_runs():
    subprocess.run(["make", "demo"], cwd=ROOT, env=environment(), check=True)


SAMPLE = """# Title
```python
a = 1
```
## One & two
```sh
# first this
make test  # a while
metarnn doctor \\
    --help

```
```python
b = a
```
"""


def test_blocks_are_found_with_their_section_and_line():
    title, shell, python = blocks(SAMPLE)
    assert title == Block("python", "", 3, "a = 1")
    assert (shell.language, shell.section, shell.line) == ("sh", "One & two", 7)
    assert commands(shell.text) == ["make test # a while", "metarnn doctor --help"]
    assert str(python) == "one-two-line-14"


def test_sections_share_no_names_but_blocks_of_one_section_do():
    title, _, python = blocks(SAMPLE)
    with pytest.raises(NameError) as raised:
        execute(python, [])
    assert raised.traceback[-1].lineno == 14 - 1  # counted from 0: the line in the README
    assert execute(python, [title])["b"] == 1


def test_an_unknown_command_fails_with_a_message(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="does not know how to check"):
        run("curl example.org", tmp_path)


@pytest.mark.medium
@pytest.mark.parametrize("command", ["make no-such-target", "metarnn no-such-command"])
def test_a_command_that_fails_is_reported(command, tmp_path):
    with pytest.raises(AssertionError, match="fails"):
        run(command, tmp_path)
