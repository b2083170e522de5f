"""A full disk, a folder that is closed, a clock that jumps: told in a line, and nothing is lost."""

import os
import random
import resource
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from metarnn.training import Folder, trainer
from tests.faults.test_killed import WORK, Work, assert_whole, begin, finish
from tests.helpers.toy import QUICK, same, train

NOBODY = 65534


def with_small_disk(work: Work, size: int) -> Work:
    """The same where no file can grow beyond so many bytes."""

    def do(folder: Path) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        work.do(folder)

    return Work(do, work.same)


@pytest.mark.slow
@pytest.mark.parametrize("size", [500, 5_000, 20_000])
@pytest.mark.parametrize("name", ["training", "search", "meta-training", "corpus preparation"])
def test_a_full_disk_is_told_and_with_room_again_it_goes_on(name, size, tmp_path):
    work = WORK[name]
    whole, full = tmp_path / "whole", tmp_path / "full"
    whole.mkdir()
    full.mkdir()
    finish(work, whole)
    _, status = os.waitpid(begin(with_small_disk(work, size), full), 0)
    said = (full / "said").read_text()[:size]
    told = any(words in said for words in ("too large", "space", "requested and"))
    assert status == 0 or told or len(said) >= size, said
    assert_whole(full)
    (full / "said").unlink()
    finish(work, full)
    assert work.same(whole, full)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for someone else")
def test_a_folder_of_someone_else_is_refused_in_a_line(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o755)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and str(parent).startswith("/tmp/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    said = tmp_path / "said"
    said.touch()
    said.chmod(0o666)

    def do(folder: Path) -> None:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        Folder(closed / "run").locked(resume=False).__enter__()

    _, status = os.waitpid(begin(Work(do, lambda *_: True), tmp_path), 0)
    assert status != 0
    assert "cannot be written to: Permission denied" in said.read_text()
    assert list(closed.iterdir()) == []


def jumping(monkeypatch) -> None:
    """The time of day jumps by up to ten years, both ways, whenever someone looks."""
    true, draw = time.time, random.Random(0)
    monkeypatch.setattr(time, "time", lambda: true() + draw.uniform(-1, 1) * 10 * 365 * 86400)


@pytest.mark.medium
def test_a_clock_that_jumps_changes_nothing(tmp_path, monkeypatch):
    train(tmp_path / "whole")
    jumping(monkeypatch)
    train(tmp_path / "run")
    assert same(tmp_path / "whole", tmp_path / "run")


def test_a_limit_in_minutes_does_not_go_by_the_time_of_day(monkeypatch):
    jumping(monkeypatch)
    clock = iter(range(10**6))
    monkeypatch.setattr(trainer.time, "monotonic", lambda: float(next(clock)))
    _, result = train(None, replace(QUICK, steps=0, minutes=0.5))
    assert result.reason == "minutes"
    assert 5 < result.step <= 30, "a second a look at the clock"
