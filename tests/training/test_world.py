"""Several processes make the same updates as one, and go on from one another's checkpoints."""

import json
import os
import signal
import socket
import time
from dataclasses import replace

import pytest
import torch

from metarnn.training import Folder, checkpoint
from metarnn.training.world import find_device
from tests.helpers.process import start
from tests.helpers.toy import QUICK, train


def torchrun(processes, *arguments, restarts):
    # Its store outlives the workers: what a dead one wrote there is still to be found.
    call = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    call += ["--max-restarts", str(restarts), "--monitor-interval", "0.1", "-m"]
    return start(*call, *arguments)


def meeting():
    """Where processes find one another: at a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}


def finish(process):
    try:
        _, errors = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 0, errors


def losses(out):
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line.get("loss", line.get("valid_nll")) for line in lines]


def test_two_parts_on_one_process_equal_the_whole_in_double_precision():
    def trained(accumulate):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            settings = replace(QUICK, accumulate=accumulate, weight_decay=0.1)
            trainer, _ = train(None, settings, dropout=0.0)
        finally:
            torch.set_default_dtype(before)
        return trainer.model.state_dict()

    whole = trained(1)
    for parts in (2, 4, 8):
        for name, weight in trained(parts).items():
            torch.testing.assert_close(weight, whole[name], rtol=1e-9, atol=1e-11)


@pytest.mark.medium
def test_two_processes_equal_one_and_one_goes_on_where_two_stopped(tmp_path, monkeypatch):
    one, two, place = tmp_path / "one", tmp_path / "two", meeting()
    train(one, dropout=0.0)
    other = start("-m", "tests.helpers.toy", str(two), "20", "plain", RANK="1", **place)
    with monkeypatch.context() as patch:
        for name, value in {"RANK": "0", **place}.items():
            patch.setenv(name, value)
        train(two, replace(QUICK, steps=20), dropout=0.0)
    finish(other)
    train(two, resume=True, dropout=0.0)
    assert losses(two) == pytest.approx(losses(one), rel=1e-4)
    ours, theirs = (checkpoint.read_weights(Folder(out).model) for out in (one, two))
    for name, weight in ours.items():
        torch.testing.assert_close(theirs[name], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.medium
def test_a_worker_that_dies_is_started_anew_and_the_run_ends_as_if_nothing_had_happened(tmp_path):
    out = tmp_path / "run"
    process = torchrun(2, "tests.helpers.toy", str(out), "300", "plain", restarts=2)
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    deadline = time.monotonic() + 60
    while not Folder(out).last.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    with open(children) as file:
        workers = [int(pid) for pid in file.read().split()]
    os.kill(workers[-1], signal.SIGKILL)
    finish(process)
    train(tmp_path / "one", replace(QUICK, steps=300), dropout=0.0)
    assert losses(out)[-1] == pytest.approx(losses(tmp_path / "one")[-1], rel=1e-2)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="expected auto, cpu"):
        find_device("tpu7")
    if not torch.cuda.is_available():
        assert find_device("auto").type == "cpu"
        with pytest.raises(ValueError, match="no CUDA device"):
            find_device("cuda")


def test_a_batch_that_cannot_be_shared_is_refused():
    with pytest.raises(ValueError, match=r"batch=8: expected a multiple|accumulate=3"):
        train(None, replace(QUICK, accumulate=3))
