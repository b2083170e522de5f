"""What the README says works: its Python runs, its commands run."""

import subprocess

import pytest

from metarnn.graph import read, svg
from metarnn.search import library
from tests.helpers.pages import (
    README,
    ROOT,
    SHOWN,
    Block,
    blocks,
    commands,
    environment,
    execute,
    run,
)

BLOCKS = blocks(README.read_text(encoding="utf-8")) if README.exists() else []
PYTHON = [block for block in BLOCKS if block.language == "python"]
COMMANDS = [block for block in BLOCKS if block.language == "sh"]


def test_the_readme_exists_and_shows_how_to_use_the_library():
    assert README.exists()
    assert PYTHON
    assert COMMANDS


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_says_what_it_is(block):
    assert block.language in {"python", "sh", "console", *SHOWN}, (
        f"README.md:{block.line - 1}: ```{block.language} is neither run nor known as something "
        f"only shown; use python or sh for what can be run, or one of {sorted(SHOWN)}"
    )


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_blocks_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Run again for each block of a section: workers that share the tests share no namespace.
    same_section = [each for each in PYTHON if each.section == block.section]
    execute([each for each in same_section if each.line <= block.line], README)


@pytest.mark.medium
@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_commands_run(block, tmp_path):
    for command in commands(block.text):  # one after the other: a later one may need an earlier
        run(command, tmp_path)


def test_a_newcomer_has_read_it_in_minutes():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 210


def test_the_picture_is_what_the_library_draws():
    unit = read(library.path("found/pydoc-product"))
    assert (ROOT / "docs" / "found.svg").read_text(encoding="utf-8") == svg(unit)


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
        execute([python], README)
    assert raised.traceback[-1].lineno == 14 - 1  # counted from 0: the line in the README
    assert execute([title, python], README)["b"] == 1


def test_an_unknown_command_fails_with_a_message(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="does not know how to check"):
        run("curl example.org", tmp_path)


@pytest.mark.medium
@pytest.mark.parametrize("command", ["make no-such-target", "metarnn no-such-command"])
def test_a_command_that_fails_is_reported(command, tmp_path):
    with pytest.raises(AssertionError, match="fails"):
        run(command, tmp_path)
