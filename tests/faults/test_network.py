"""Two hosts, each an agent of torchrun: a worker lost on one of them, and all go on."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from metarnn.training import Folder, checkpoint
from tests.helpers.process import ROOT
from tests.helpers.toy import QUICK, train
from tests.training.test_world import NAMES, losses

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
STEPS = 400


def agent(out, endpoint, node):
    """torchrun on one of two hosts, with one worker each."""
    call = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
    call += ["--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint]
    call += ["--rdzv-id", "7", "--max-restarts", "3", "--monitor-interval", "0.2"]
    call += ["--local-addr", "127.0.0.1"]
    kept = {name: value for name, value in os.environ.items() if name not in NAMES}
    kept |= {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    log = open(out.parent / f"host{node}.log", "w")  # noqa: SIM115
    return subprocess.Popen(
        [*call, "-m", "tests.helpers.toy", str(out), str(STEPS), "plain"],
        env=kept, stdout=log, stderr=log, cwd=ROOT, start_new_session=True,
    )  # fmt: skip


def workers(process) -> list[int]:
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        return [int(pid) for pid in file.read().split()]


def wait_for_a_checkpoint(out, hosts) -> None:
    deadline = time.monotonic() + 120
    while not Folder(out).last.exists():
        assert time.monotonic() < deadline, _logs(out)
        assert all(host.poll() is None for host in hosts), _logs(out)
        time.sleep(0.05)


def end(out, hosts) -> None:
    try:
        for host in hosts:
            assert host.wait(timeout=200) == 0, _logs(out)
    finally:
        for host in hosts:
            if host.poll() is None:
                os.killpg(host.pid, signal.SIGKILL)
    assert checkpoint.load(Folder(out).last)["position"]["step"] == STEPS


def _logs(out) -> str:
    return "\n".join(path.read_text()[-3000:] for path in sorted(out.parent.glob("host*.log")))


def as_if_alone(out) -> None:
    train(out.parent / "alone", replace(QUICK, steps=STEPS), dropout=0.0)
    assert losses(out)[-1] == pytest.approx(losses(out.parent / "alone")[-1], rel=2e-2)


def test_a_worker_lost_on_one_of_two_hosts_is_started_anew(tmp_path):
    out = tmp_path / "run"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    hosts = [agent(out, endpoint, node) for node in range(2)]
    wait_for_a_checkpoint(out, hosts)
    os.kill(workers(hosts[1])[-1], signal.SIGKILL)
    end(out, hosts)
    as_if_alone(out)
