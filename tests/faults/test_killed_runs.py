"""A training killed at any point, from its start on, ends with the weights of one that was not."""

import importlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from metarnn.cli.main import main
from metarnn.engines.cpu import compile as compiling
from metarnn.engines.cpu import engine, loops
from metarnn.runs import tasks
from tests.faults.test_killed import Work, assert_whole, begin, finish
from tests.helpers.sources import SOURCES
from tests.helpers.toy import same

CACHES = (
    compiling.load,
    loops.loop_kernel,
    loops.forward_call,
    loops.backward_call,
    engine.cpu_call,
)
TRAIN = [
    "--steps", "6", "--save-every", "2", "--validate-every", "3", "--log-every", "1",
    "--device", "cpu", "--seed", "3", "--engine", "cpu", "--resume",
]  # fmt: skip
TASKS = {
    "lm": ("lm, folder", ["--output-dropout", "0.2"]),
    "translation": ("translation, file", ["--dropout", "0.2"]),
    "classification": ("classification, file", ["--dropout", "0.2"]),
    "forecasting": ("forecasting, file", ["--dropout", "0.2"]),
}


@pytest.fixture(scope="module", autouse=True)
def imported():
    """What a first layer imports, imported once for all processes that are forked."""
    importlib.import_module("torch._dynamo")
    for name in TASKS:
        tasks.find(name)


class Points:
    """The places where a process may be killed: before and after each file that gets its name,
    each link, and each start of a compiler."""

    def __init__(self, fatal: int = 0) -> None:
        self.count, self.fatal = 0, fatal

    def reached(self) -> None:
        self.count += 1
        if self.count == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable) -> Callable:
        def wrapped(*args, **kwargs):
            self.reached()
            result = call(*args, **kwargs)
            self.reached()
            return result

        return wrapped


def training(task: str, data: str, fatal: int = 0) -> Work:
    """A training with an empty kernel cache of its own, killed at a point; 0 for none."""
    name, flags = TASKS[task]
    source = SOURCES[name]

    def do(folder: Path) -> None:
        os.environ["METARNN_CACHE"] = str(folder / "cache")
        for cache in CACHES:
            cache.cache_clear()
        points = Points(fatal)
        os.replace, os.link = points.around(os.replace), points.around(os.link)
        subprocess.Popen = points.around(subprocess.Popen)
        arguments = [*source.arguments(data), *TRAIN, *flags, "--out", str(folder / "run")]
        try:
            assert main(["train", source.task, *arguments]) == 0
        finally:
            (folder / "points").write_text(str(points.count))

    return Work(do, lambda one, other: same(one / "run", other / "run"))


def killed_at(point: int, task: str, data: str, folder: Path) -> bool:
    """Kill a training at a point, counted from the start of its process; False if it ended."""
    _, status = os.waitpid(begin(training(task, data, point), folder), 0)
    assert_whole(folder)
    assert status in (0, signal.SIGKILL), (folder / "said").read_text()
    return status == signal.SIGKILL


@pytest.mark.medium
@pytest.mark.parametrize("task", TASKS)
def test_a_training_killed_at_a_handful_of_points_ends_the_same(task, tmp_path):
    data = SOURCES[TASKS[task][0]].write(tmp_path / "data")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir()
    # With an empty cache: after config.toml, after what describes the model, while the compiler
    # runs; then with some kernels in it, and after the first checkpoint.
    assert all(killed_at(point, task, data, killed) for point in (4, 11, 16, 24))
    killed_at(45, task, data, killed)
    finish(training(task, data), killed)
    shutil.copytree(killed / "cache", whole / "cache")
    finish(training(task, data), whole)
    assert training(task, data).same(whole, killed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("task", TASKS)
def test_a_training_killed_at_each_point_ends_the_same(task, tmp_path):
    data = SOURCES[TASKS[task][0]].write(tmp_path / "data")
    whole = tmp_path / "whole"
    whole.mkdir()
    finish(training(task, data), whole)
    count = int((whole / "points").read_text())
    assert count > 40
    for point in range(1, count + 1):
        killed = tmp_path / f"killed{point}"
        killed.mkdir()
        if point % 2:  # with an empty cache, and with a full one
            shutil.copytree(whole / "cache", killed / "cache")
        killed_at(point, task, data, killed)
        finish(training(task, data), killed)
        assert training(task, data).same(whole, killed), point
        shutil.rmtree(killed)
