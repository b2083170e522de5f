"""Killed at any moment: no file is torn, and what is done again ends as if nothing had been."""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from metarnn import cells, graph
from metarnn.cli import learn as learn_command  # noqa: F401
from metarnn.cli import search as search_command  # noqa: F401

# Imported here, so that processes that are forked find them.
from metarnn.cli import train as train_command  # noqa: F401
from metarnn.cli.main import main
from metarnn.engines.cpu import compile as compiling
from metarnn.graph.files import LEFT, tidy
from metarnn.layers import Recurrent
from metarnn.report.write import write_report
from metarnn.runs import fewshot, lm  # noqa: F401
from metarnn.study import setup
from metarnn.tasks.language import corpus
from metarnn.training import Folder, checkpoint
from tests.cli.test_search import TINY
from tests.helpers.study import make_study
from tests.helpers.toy import equal, same
from tests.study.test_learn import FAST

LM = [
    "--width", "8", "--embedding", "4", "--batch", "4", "--length", "8", "--steps", "30",
    "--validate-every", "10", "--save-every", "3", "--log-every", "4", "--split", "80/10/10",
    "--device", "cpu", "--engine", "eager",
]  # fmt: skip
FEWSHOT = [
    "--family", "sinusoid", "--steps", "8", "--batch", "2", "--width", "4", "--tasks", "4",
    "--validate-every", "4", "--save-every", "2", "--device", "cpu",
]  # fmt: skip


@dataclass(frozen=True)
class Work:
    """Something that takes a while, and what comes out.

    do    does it into a folder, or goes on with what is there
    same  whether two folders hold the same result
    """

    do: Callable[[Path], None]
    same: Callable[[Path, Path], bool]


def text(folder: Path) -> str:
    path = folder.parent / "text.txt"
    if not path.exists():
        path.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    return str(path)


def train(folder: Path) -> None:
    flags = ["--data", text(folder), "--out", str(folder / "run"), "--resume", *LM]
    assert main(["train", "lm", *flags]) == 0


def search(folder: Path) -> None:
    flags = ["--data", text(folder), "--out", str(folder / "run"), "--resume", "--steps", "6"]
    assert main(["search", "lm", *flags, *TINY, "--seeds", "1"]) == 0


def meta_train(folder: Path) -> None:
    flags = ["--out", str(folder / "run"), "--resume", *FEWSHOT]
    assert main(["train", "fewshot", *flags]) == 0


def prepare(folder: Path) -> None:
    path = folder.parent / "large.txt"
    if not path.exists():
        path.write_text("".join(f"line {k} of a text\n" for k in range(60_000)))
    corpus.load(str(path), "word", cache=folder, in_memory=0)


def compile_kernels(folder: Path) -> None:
    os.environ["METARNN_CACHE"] = str(folder / "cache")
    compiling.load.cache_clear()
    for k in range(4):
        library = compiling.load(f"int answer(void) {{ return {k}; }}")
        assert library.answer() == k


def report(folder: Path) -> None:
    """Of a study that is beside the folder."""
    study = folder.parent / "study"
    if not study.exists():
        make_study(study)
    write_report([study], folder / "report.html")
    tidy(folder)


def learn(folder: Path) -> None:
    flags = ["--out", str(folder / "run"), "--resume", *FAST]
    plain = setup.settings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "settings", lambda found: {**plain(found), "engine": "eager"})
        assert main(["learn", text(folder), *flags]) == 0


def same_runs(one: Path, other: Path) -> bool:
    return same(one / "run", other / "run")


def same_searches(one: Path, other: Path) -> bool:
    verdicts = [json.loads((path / "run" / "verdict.json").read_text()) for path in (one, other)]
    units = [(path / "run" / "cell.json").read_text() for path in (one, other)]
    return equal(*verdicts) and units[0] == units[1]


def same_corpora(one: Path, other: Path) -> bool:
    found = [sorted((path / "corpora").glob("*/*")) for path in (one, other)]
    names = [[path.name for path in paths] for paths in found]
    return names[0] == names[1] and all(
        a.read_bytes() == b.read_bytes() for a, b in zip(*found, strict=True)
    )


def same_caches(one: Path, other: Path) -> bool:
    names = [{p.name for p in path.glob("cache/*.so")} for path in (one, other)]
    return names[0] == names[1] and len(names[0]) == 4


def same_reports(one: Path, other: Path) -> bool:
    return (one / "report.html").read_bytes() == (other / "report.html").read_bytes()


def same_studies(one: Path, other: Path) -> bool:
    weights = [(path / "run" / "model.safetensors").read_bytes() for path in (one, other)]
    return weights[0] == weights[1] and (other / "run" / "report.html").exists()


WORK = {
    "training": Work(train, same_runs),
    "search": Work(search, same_searches),
    "meta-training": Work(meta_train, same_runs),
    "corpus preparation": Work(prepare, same_corpora),
    "kernel compilation": Work(compile_kernels, same_caches),
    "report": Work(report, same_reports),
    "learn": Work(learn, same_studies),
}


def begin(work: Work, folder: Path) -> int:
    """The number of a process that does it; forked, since a new one would first import torch."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        handle = os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        torch.set_num_threads(1)
        work.do(folder)
        code = 0
    except BaseException:
        with suppress(OSError):  # a full disk takes no message either
            traceback.print_exc()
    finally:
        try:
            sys.stderr.flush()
        finally:
            os._exit(code)  # whatever happens: beyond this a second pytest would go on


def finish(work: Work, folder: Path) -> float:
    """Do it to its end; how long that took."""
    before = time.monotonic()
    _, status = os.waitpid(begin(work, folder), 0)
    assert status == 0, (folder / "said").read_text()
    return time.monotonic() - before


def assert_whole(folder: Path) -> None:
    """Every file that has its name can be read."""
    for path in folder.rglob("*"):
        if not path.is_file() or path.name.startswith(".") or ".build-" in str(path):
            continue
        if path.suffix == ".safetensors":
            checkpoint.read_weights(path)
        elif path.name == "cell.json":
            graph.read(path)
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".jsonl":
            for line in path.read_text().splitlines():
                json.loads(line)
        elif path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>")


def killed(name: str, times: int, folder: Path) -> None:
    work = WORK[name]
    whole, other = folder / "whole", folder / "killed"
    whole.mkdir()
    other.mkdir()
    seconds = finish(work, whole)
    draw = random.Random(os.urandom(8))
    for _ in range(times):
        process = begin(work, other)
        time.sleep(draw.random() * seconds)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        assert_whole(other)
    finish(work, other)
    assert work.same(whole, other)
    assert not [path for path in other.rglob("*") if LEFT.fullmatch(path.name)]
    assert not list(other.glob("corpora/.build-*"))


# These are killed among the tests of training and of `metarnn learn`, too.
ELSEWHERE = {"training", "learn"}


@pytest.mark.medium
@pytest.mark.parametrize("name", [name for name in WORK if name not in ELSEWHERE])
def test_killed_once(name, tmp_path):
    killed(name, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", WORK)
def test_killed_thirty_times(name, tmp_path):
    killed(name, 30, tmp_path)


@pytest.mark.slow
def test_a_layer_is_right_whenever_a_compilation_was_killed(tmp_path):
    """Whatever is in the cache then, results are those of the eager engine."""

    def run(folder: Path) -> None:
        os.environ["METARNN_CACHE"] = str(folder / "cache")
        compiling.load.cache_clear()
        torch.manual_seed(0)
        layer = Recurrent(cells.GRU(3, 5), engine="cpu")
        eager = Recurrent(cells.GRU(3, 5), engine="eager")
        eager.load_state_dict(layer.state_dict())
        x = torch.randn(4, 2, 3)
        np.testing.assert_allclose(
            layer(x)[0].detach().numpy(), eager(x)[0].detach().numpy(), rtol=1e-5, atol=1e-6
        )

    WORK["layer"] = Work(run, lambda one, other: True)
    try:
        killed("layer", 20, tmp_path)
    finally:
        del WORK["layer"]


@pytest.mark.medium
def test_a_second_process_on_a_run_is_refused_and_told_of_the_first(tmp_path):
    process = begin(WORK["training"], tmp_path)
    last = Folder(tmp_path / "run").last
    while not last.exists():
        assert os.waitpid(process, os.WNOHANG) == (0, 0), "it ended before it was met"
        time.sleep(0.001)
    os.kill(process, signal.SIGSTOP)
    second = begin(WORK["training"], tmp_path)
    os.waitpid(second, 0)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert f"is being trained into by process {process} on" in (tmp_path / "said").read_text()
