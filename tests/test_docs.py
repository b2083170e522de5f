"""What docs/ says works: its Python runs, its commands run or are understood, its links lead on."""

import importlib.util
import re

import pytest

from tests.helpers.pages import (
    README,
    ROOT,
    SHOWN,
    blocks,
    broken_links,
    commands,
    execute,
    named,
    run,
    understand,
)
from tools import results

DOCS = ROOT / "docs"
GUIDES = sorted(DOCS.glob("*.md"))
TUTORIALS = [path for path in sorted(DOCS.glob("tutorials/*.md")) if path.stem != "index"]
PAGES = [*GUIDES, *TUTORIALS, ROOT / "CONTRIBUTING.md"]
BLOCKS = {path: blocks(path.read_text(encoding="utf-8")) for path in PAGES}
SECTIONS = {
    f"{path.stem}-{block.section}": (path, block.section)
    for path in GUIDES
    for block in BLOCKS[path]
    if block.language == "python"
}
TYPED = [path for path in PAGES if any(b.language == "sh" for b in BLOCKS[path])]


@pytest.mark.parametrize("name", SECTIONS)
def test_the_python_of_a_section_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, section = SECTIONS[name]
    execute([b for b in BLOCKS[path] if (b.language, b.section) == ("python", section)], path)


@pytest.mark.medium
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    execute([b for b in BLOCKS[path] if b.language == "python"], path)


@pytest.mark.medium
@pytest.mark.parametrize("path", TYPED, ids=lambda path: path.stem)
def test_the_commands_of_a_page_run(path, tmp_path):
    for block in BLOCKS[path]:
        for command in commands(block.text) if block.language == "sh" else ():
            run(command, tmp_path)  # one after the other: a later one may need an earlier


@pytest.mark.medium
@pytest.mark.parametrize("path", [README, *PAGES], ids=lambda path: path.stem)
def test_commands_that_are_named_are_understood(path):
    page = path.read_text(encoding="utf-8")
    shown = [c for b in blocks(page) if b.language == "console" for c in commands(b.text)]
    for command in named(page) + [c for c in shown if c.startswith("metarnn ")]:
        understand(command)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_block_says_what_it_is(path):
    for block in BLOCKS[path]:
        known = {"python", "sh", "console", "{toctree}", "{eval-rst}", *SHOWN}
        assert block.language in known, f"{path.name}:{block.line - 1}: ```{block.language}"


@pytest.mark.parametrize("path", [README, *PAGES], ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    assert not broken_links(path)


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# A heading, `here`\n")
    page.write_text("[a](other.md#a-heading-here) [b](other.md#b) [c](c.md) [d](https://d.org)\n")
    assert broken_links(page) == ["other.md#b", "c.md"]


@pytest.mark.parametrize("command", ["metarnn train lm --wdith 3", "metarnn export run --too x"])
def test_a_command_with_a_flag_that_is_not_there_is_found(command, capsys):
    with pytest.raises(SystemExit):
        understand(command)


def plain():
    """docs/plain.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("plain", DOCS / "plain.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_plain_docstrings_become_what_sphinx_reads():
    said = """A unit, `h_t`, with W* and |x|.

    r = σ(W x)
    z = r ⊙ h

    width   how wide
    depth   how deep, and
            no deeper
    """
    lines = [line.removeprefix("    ") for line in said.splitlines()]
    found = "\n".join(plain().as_rst(lines))
    assert r"A unit, ``h_t``, with W\* and \|x\|." in found
    assert ".. code-block:: text\n\n    r = σ(W x)\n    z = r ⊙ h" in found
    assert "``depth``\n    how deep, and\n    no deeper" in found


@pytest.mark.parametrize("page", results.TABLES)
def test_tables_are_those_of_the_results(page):
    assert (ROOT / page).read_text(encoding="utf-8") == results.filled(page), "run tools/results.py"


def test_every_page_is_in_the_table_of_contents():
    for folder in (DOCS, DOCS / "tutorials", DOCS / "api"):
        index = (folder / "index.md").read_text(encoding="utf-8")
        trees = [b.text.splitlines() for b in blocks(index) if b.language == "{toctree}"]
        listed = {line for tree in trees for line in tree if line and not line.startswith(":")}
        pages = {path.stem for path in folder.glob("*.md")} - {"index"}
        assert pages <= listed, f"{folder.name}/index.md: add {sorted(pages - listed)}"


def test_every_folder_has_its_part_in_the_guide_the_reference_and_the_map():
    folders = {path.parent.name for path in (ROOT / "src" / "metarnn").glob("*/__init__.py")}
    guide = (DOCS / "folders.md").read_text(encoding="utf-8")
    written = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for folder in folders:
        assert f"## {folder}: " in guide
        assert f"| `{folder}` | " in written
    assert {path.stem for path in (DOCS / "api").glob("*.md")} == folders - {"cli"} | {"index"}


def test_files_that_the_map_names_are_there():
    for path in (ROOT / "CONTRIBUTING.md", DOCS / "folders.md"):
        for row in path.read_text(encoding="utf-8").splitlines():
            names = re.findall(r"`([\w/]+\.py)`", row)
            found = re.match(r"\| `(\w+)` \|", row)  # of a row of the table, in that folder
            base = ROOT / "src" / "metarnn" / (found[1] if found else "")
            for name in names:
                there = (base / name).exists() or (ROOT / name).exists()
                assert there, f"{path.name}: {name}"
