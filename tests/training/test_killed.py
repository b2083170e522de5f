"""A process that is killed loses the steps since its last checkpoint, and nothing else."""

import random
import signal
import time
from dataclasses import replace

import pytest

from metarnn.training import Folder, checkpoint
from tests.helpers.process import start
from tests.helpers.toy import QUICK, same, train

STEPS = 150


def finish(out):
    train(out, replace(QUICK, steps=STEPS), resume=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    finish(out)
    return out


def kill(out, after, number):
    """Let a run go on for so many saved steps and a moment, then end it."""
    last = Folder(out).last
    begin = checkpoint.load(last)["position"]["step"] if last.exists() else 0
    process = start("-m", "tests.helpers.toy", str(out), str(STEPS), "resume")
    reached = begin
    while process.poll() is None and reached < begin + after:
        time.sleep(0.005)
        if last.exists():
            reached = checkpoint.load(last)["position"]["step"]  # always whole, at any moment
    time.sleep(random.random() * 0.03)
    process.send_signal(number)
    process.communicate(timeout=100)
    saved = checkpoint.load(last)["position"]["step"] if last.exists() else 0
    assert saved >= reached


def killed_again_and_again(out, whole, times):
    for k in range(times):
        number = signal.SIGTERM if k % 3 else signal.SIGKILL
        kill(out, random.randint(0, STEPS // times), number)
    finish(out)
    assert same(out, whole)
    left = [path.name for path in out.rglob(".*") if path.name != ".lock"]
    assert left == []


@pytest.mark.medium
def test_killed_twice(tmp_path, whole):
    killed_again_and_again(tmp_path / "run", whole, 2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_twenty_times(tmp_path, whole):
    killed_again_and_again(tmp_path / "run", whole, 20)
