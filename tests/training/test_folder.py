"""A run folder has one owner, is never overwritten, and keeps what it has when the disk is full."""

import os
import resource
import signal
from contextlib import contextmanager
from dataclasses import replace

import pytest

from metarnn.training import Folder, FolderError, checkpoint
from metarnn.training.metrics import Metrics
from tests.helpers.toy import QUICK, same, train


def test_a_folder_with_a_run_is_refused_and_left_alone(tmp_path):
    train(tmp_path / "run")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(FolderError, match=r"holds a run already.*--resume"):
        train(tmp_path / "run")
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_folder_of_other_files_is_refused_and_an_empty_one_is_used(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    with pytest.raises(FolderError, match="--out"):
        train(tmp_path / "other")
    (tmp_path / "empty").mkdir()
    train(tmp_path / "empty", replace(QUICK, steps=1))


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(FolderError, match="is a file"):
        train(tmp_path / "run")


def test_a_second_process_is_refused_and_told_who_is_there(tmp_path):
    folder = Folder(tmp_path / "run")
    found = f"is being trained into by process {os.getpid()} on"
    with folder.locked(resume=False), pytest.raises(FolderError, match=found):
        # A lock belongs to an open file, so that a second one is refused in one process too.
        Folder(folder.path).locked(resume=True).__enter__()
    with folder.locked(resume=True):  # free again
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(FolderError, match="cannot be written to: Permission denied"):
        train(tmp_path / "run")


def test_a_place_where_no_folder_can_be_is_refused():
    with pytest.raises(FolderError, match="cannot be written to"):
        train("/proc/no/such/place")


@contextmanager
def full_disk(after):
    """Files cannot grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("size", [10_000, 100])
def test_when_the_disk_is_full_the_last_checkpoint_stays_whole(tmp_path, size):
    """10,000 bytes are too few for a checkpoint, 100 for another line of metrics."""
    train(tmp_path / "whole")
    train(tmp_path / "run", signals={12: signal.SIGTERM})
    with full_disk(size), pytest.raises(OSError, match=r"too large|no space"):
        train(tmp_path / "run", resume=True)
    assert checkpoint.load(Folder(tmp_path / "run").last)["position"]["step"] == 13
    assert not [p for p in (tmp_path / "run").rglob(".*safetensors*")]
    train(tmp_path / "run", resume=True)
    assert same(tmp_path / "whole", tmp_path / "run")


def test_a_line_of_metrics_that_does_not_fit_leaves_none_of_it(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.add(1, {"loss": 1.0, "bad": float("nan")})
    before = metrics.path.read_bytes() if metrics.path else b""
    assert before.startswith(b'{"step": 1, "loss": 1.0, "bad": null, "blake2b": ')
    with full_disk(len(before) + 5), pytest.raises(OSError, match=r"large|space"):
        metrics.add(2, {"loss": 2.0})
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    train(tmp_path / "run", replace(QUICK, steps=1))
    left = [tmp_path / "run" / name for name in (".model.safetensors.x1y2z3_0.new", ".tmpAb12Cd")]
    left.append(tmp_path / "run" / "checkpoints" / ".last.safetensors.abcd0123.new")
    others = [tmp_path / "run" / name for name in (".gitignore", "notes.txt", ".mine.new")]
    for path in left + others:
        path.write_text("half")
    train(tmp_path / "run", replace(QUICK, steps=2), resume=True)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in others)
