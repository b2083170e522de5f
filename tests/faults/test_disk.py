"""Whichever write of a command fails: the file and the cause are named, and no file is torn."""

import errno
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from metarnn.cli.main import main
from metarnn.graph import files
from metarnn.graph.files import LEFT
from metarnn.training import checkpoint
from tests.cli.test_search import TINY
from tests.cli.test_split import DATA
from tests.cli.test_split import train as train_task
from tests.faults.test_damaged import content_of
from tests.helpers.disk import KINDS, PowerCut, failing
from tests.helpers.toy import equal
from tests.study.test_learn import FAST, make_quick

pytestmark = pytest.mark.medium

QUICK = [
    "--steps", "2", "--validate-every", "1", "--save-every", "1", "--device", "cpu",
    "--width", "4", "--batch", "4", "--engine", "eager", "--split", "60/20/20",
]  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A command, as arguments with {data}, {run} and {out} in them, and how many of its writes
    fail, one after the other: 0 for all."""

    arguments: list[str]
    task: str = "classification"
    sample: int = 0


COMMANDS = {
    "train": Command(
        ["train", "classification", "--data", "{data}", "--out", "{out}", "--resume", *QUICK]
    ),
    "evaluate": Command(["evaluate", "{run}", "--device", "cpu"]),
    "report": Command(["report", "{run}", "--out", "{out}/page.html"]),
    "export": Command(["export", "{run}", "--form", "sequence", "--out", "{out}"]),
    "adapt": Command(
        ["adapt", "{run}", "--support", "{data}/00.txt", "--out", "{out}/w"], "fewshot"
    ),
    "compare": Command(
        ["compare", "--task", "recall", "--cells", "elman", "--delay", "4", "--steps", "2",
         "--params", "200", "--seeds", "1", "--out", "{out}/curves.svg"]
    ),
    "search": Command(
        ["search", "lm", "--data", "{data}", "--out", "{out}", "--resume", "--steps", "4", *TINY,
         "--seeds", "1"], "lm", 5,
    ),
    "learn": Command(["learn", "{data}", "--out", "{out}", "--resume", *FAST], "lm", 2),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Callable[[str], tuple[Path, Path]]:
    """The data of a task and a run of it."""
    made: dict[str, tuple[Path, Path]] = {}

    def run_of(task: str) -> tuple[Path, Path]:
        if task not in made:
            folder = tmp_path_factory.mktemp(task)
            if task == "lm":
                data = folder / "text.txt"
                data.write_text("the quick brown fox jumps over the lazy dog. " * 60)
                made[task] = data, folder
            else:
                data = DATA[task](folder)
                made[task] = data, train_task(task, data, folder / "run")
        return made[task]

    return run_of


@pytest.mark.parametrize("name", COMMANDS)
def test_a_write_that_fails(name, runs, tmp_path, capsys, monkeypatch):
    make_quick(monkeypatch)
    command = COMMANDS[name]
    data, run = runs(command.task)

    def call(folder: Path) -> int:
        own, out = folder / "run", folder / "out"
        if not folder.exists():
            shutil.copytree(run, own)
            (own / "baselines.json").unlink(missing_ok=True)
            out.mkdir()
        places = {"data": data, "run": own, "out": out}
        return main([word.format(**places) for word in command.arguments])

    whole = tmp_path / "whole"
    with failing() as disk:
        assert call(whole) == 0, capsys.readouterr().err
    count = len(disk.paths)
    assert count
    sample = command.sample or count
    for at in sorted({k * count // sample for k in range(sample)}):
        kind = KINDS[at % len(KINDS)]
        folder = tmp_path / f"{at}-{kind}"
        capsys.readouterr()
        with failing(at, kind) as disk:
            try:
                code = call(folder)
            except PowerCut:
                code = -1
        said = capsys.readouterr().err
        case = f"{kind} at {disk.paths[at]}: {said}"
        assert kind == "power" or code == 2 or disk.paths[at].count("baselines.json"), case
        assert kind == "power" or code >= 0
        if code == 2:
            assert os.strerror(getattr(errno, kind)) in said, case
            path = Path(disk.paths[at])
            name_of = path.name[1:-13] if LEFT.fullmatch(path.name) else path.name
            assert name_of in said, case
        assert_whole(folder, case)
        assert call(folder) == 0, f"{case}, then {capsys.readouterr().err}"
        assert_same(whole, folder, case)


def assert_whole(folder: Path, case: str) -> None:
    """Every file that has its name can be read."""
    for path in folder.rglob("*"):
        if path.suffix in (".toml", ".json", ".jsonl", ".safetensors"):
            content_of(path)
        elif path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>"), case
        elif path.suffix == ".svg":
            assert path.read_text().rstrip().endswith("</svg>"), case


def assert_same(one: Path, other: Path, case: str) -> None:
    """Both hold the same files, with the same weights."""
    names = [
        {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
        for folder in (one, other)
    ]
    assert names[0] == names[1], case
    for name in names[0]:
        if name.name == "model.safetensors":
            weights = [checkpoint.read_weights(folder / name) for folder in (one, other)]
            assert equal(*weights), f"{case}: {name}"


# Who writes files of its own: each into a folder that no other process sees before it is complete.
OWN = {
    "graph/files.py", "engines/cpu/compile.py", "cli/doctor.py", "tasks/language/corpus.py",
    "tasks/language/source.py", "tasks/language/tokens.py",
}  # fmt: skip
WRITES = re.compile(
    r"(\w+)\.(?:write_text|write_bytes)\(|os\.(?:replace|rename)\(|shutil\.copy\w*\(.*, (\w+)\)|"
    r"\b(\w+)\.open\(\"[wax]|\bopen\([^)]*\"[wax]b?\"|save_file\(\w+, (\w+)|np\.save\w*\("
)


def test_all_files_are_written_in_one_place():
    """Whatever else writes does so into what `beside` hands out."""
    source = Path(files.__file__).parents[1]
    others = []
    for path in sorted(source.rglob("*.py")):
        name = str(path.relative_to(source))
        for line in path.read_text().splitlines():
            match = WRITES.search(line)
            if match and name not in OWN and "new" not in match.groups() and "devnull" not in line:
                others.append(f"{name}: {line.strip()}")
    assert not others
