"""Two hosts, each an agent of torchrun: a worker or the network is lost, and all go on."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from metarnn.training import Folder, checkpoint
from tests.helpers.process import ROOT, environment
from tests.helpers.toy import QUICK, train
from tests.training.test_world import losses

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
STEPS = 400


@dataclass(frozen=True)
class Host:
    """Where an agent runs: its address, and the namespace with the one network that it has."""

    address: str = "127.0.0.1"
    namespace: str = ""
    network: str = ""


HERE = Host()


def agent(out, endpoint, node, host=HERE):
    """torchrun on one of two hosts, with one worker each."""
    call = ["ip", "netns", "exec", host.namespace] if host.namespace else []
    call += [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
    call += ["--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint]
    call += ["--rdzv-id", "7", "--max-restarts", "3", "--monitor-interval", "0.2"]
    call += ["--local-addr", host.address, "--rdzv-conf", f"is_host={int(node == 0)}"]
    named = {"GLOO_SOCKET_IFNAME": host.network} if host.network else {}
    log = open(out.parent / f"host{node}.log", "w")  # noqa: SIM115
    return subprocess.Popen(
        [*call, "-m", "tests.helpers.toy", str(out), str(STEPS), "plain"],
        env=environment(**named), stdout=log, stderr=log, cwd=ROOT, start_new_session=True,
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
        stop(hosts)
    assert checkpoint.load(Folder(out).last)["position"]["step"] == STEPS


def stop(hosts) -> None:
    for host in hosts:
        if host.poll() is None:
            os.killpg(host.pid, signal.SIGKILL)


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


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@contextmanager
def two_hosts() -> Iterator[list[Host]]:
    """Two namespaces with a cable between them; both are gone at the end."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` to make networks with")
    names = [f"metarnn{os.getpid()}{side}" for side in "ab"]
    hosts = [Host(f"10.231.7.{k}", name, f"cable{k}") for k, name in enumerate(names, 1)]
    first, second = hosts
    try:
        try:
            for host in hosts:
                ip("netns", "add", host.namespace)
            ip("-n", first.namespace, "link", "add", first.network, "type", "veth", "peer", "name",
               second.network, "netns", second.namespace)  # fmt: skip
            for host in hosts:
                inside = ("-n", host.namespace)
                ip(*inside, "address", "add", f"{host.address}/24", "dev", host.network)
                ip(*inside, "link", "set", "lo", "up")
                ip(*inside, "link", "set", host.network, "up")
        except OSError as error:
            pytest.skip(f"networks cannot be made here: {error}")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "delete", host.namespace], capture_output=True)


def test_a_network_that_is_cut_and_healed_only_takes_time(tmp_path):
    out, metrics = tmp_path / "run", Folder(tmp_path / "run").metrics
    with two_hosts() as (first, second):
        hosts = [agent(out, f"{first.address}:29400", k, h) for k, h in enumerate((first, second))]
        try:
            wait_for_a_checkpoint(out, hosts)
            ip("-n", second.namespace, "link", "set", second.network, "down")
            time.sleep(1)  # what is on its way arrives
            there = metrics.stat().st_size
            time.sleep(4)
            assert metrics.stat().st_size == there, "they went on without each other"
            ip("-n", second.namespace, "link", "set", second.network, "up")
            end(out, hosts)
        finally:
            stop(hosts)
    as_if_alone(out)
