"""Pages of Markdown as claims: what stands in their fences runs, what they link to is there."""

import contextlib
import functools
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest import mock

import pytest
import tyro

from metarnn.cli.main import COMMANDS, TASKED, find, main
from metarnn.cli.train import parse
from metarnn.runs import tasks
from metarnn.runs.searched import Searched

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
SHOWN = {"text", "toml", "json"}  # fences that only show something
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


def blocks(page: str) -> list[Block]:
    found: list[Block] = []
    section, language, begin = "", None, 0
    lines = page.splitlines()
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
    assert language is None, f"line {begin}: this fence is never closed"
    return found


def commands(text: str) -> list[str]:
    """The command lines of a shell block, continued lines joined, comments left out."""
    lines = text.replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if shlex.split(line, comments=True)]


def named(page: str) -> list[str]:
    """The commands of this library that a page names in its prose, whole ones."""
    prose = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    found = (" ".join(each.split()) for each in re.findall(r"`(metarnn [^`]+)`", prose))
    return [each for each in found if not re.search(r"…|TASK|COMMAND", each)]


def environment() -> dict[str, str]:
    # Run by make itself, the tests must not hand its flags on to the make they start.
    inherited = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return inherited | {"PYTHONPATH": path}


def run(command: str, elsewhere: Path) -> None:
    """Run one command of a page; of `make`, check that it could be run."""
    said, _, command = command.rpartition(" | ")  # what `echo` says goes in
    program, *arguments = shlex.split(command, comments=True)
    if program == "make":
        call = ["make", "-n", *arguments]
        done = subprocess.run(call, cwd=ROOT, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, f"`{command}` fails:\n{done.stdout}{done.stderr}"
    elif program == "metarnn":
        short = {"train": SHORT, "search": SEARCH}.get(arguments[0], ())
        short += SHORT_OF.get(arguments[1], ()) if arguments[0] == "train" else ()
        typed = io.TextIOWrapper(io.BytesIO(said.removeprefix("echo ").encode()))
        # In this process: importing torch for each command would take most of the time.
        with contextlib.chdir(elsewhere), mock.patch.object(sys, "stdin", typed):
            assert _code([*arguments, *short]) == 0, f"`{command}` fails"
    else:
        pytest.fail(
            f"A page says to run `{command}`, and this test does not know how to check that: "
            "teach it the command, or mark the block as text if it is not meant to be typed."
        )


def _code(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as left:
        return int(left.code or 0)


def understand(command: str) -> None:
    """Check that the command and its flags exist, without running it."""
    words = shlex.split(command.partition(" > ")[0].rpartition(" | ")[2], comments=True)
    assert words[0] == "metarnn", command
    given = words[1:]
    name = next((name for name in (" ".join(given[:2]), given[0]) if name in COMMANDS), "")
    rest = given[len(name.split()) :]
    if not name or not rest or rest[-1] == "--help":
        # Prose may leave out what a command is about: `metarnn doctor`, but also `metarnn export`.
        assert name or given in (["--help"], ["--version"]), f"`{command}` is not understood"
    elif name in TASKED:
        entry = tasks.find(rest[0])
        parse(entry if name == "train" else Searched.of(entry), rest[1:])
    else:
        nothing = functools.wraps(find(name))(lambda *arguments, **flags: None)
        tyro.cli(nothing, prog=f"metarnn {name}", args=rest)


def execute(blocks: list[Block], source: Path) -> dict[str, Any]:
    """Run blocks one after the other in one namespace; return that."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for each in blocks:
        # The empty lines make a traceback point at the line in the page.
        exec(compile("\n" * (each.line - 1) + each.text, str(source), "exec"), namespace)
    return namespace


def anchors(page: str) -> set[str]:
    """What links to the headings of a page end with."""
    outside = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", outside, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def broken_links(path: Path) -> list[str]:
    """Links of a page to files that are not there, or to headings that they do not have."""
    page = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        whole = there.exists() and not (
            anchor and anchor not in anchors(there.read_text(encoding="utf-8"))
        )
        if not whole:
            found.append(target)
    return found
