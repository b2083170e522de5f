"""Without a terminal: closed standard streams, a terminal that goes away, nohup."""

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from metarnn.cli.main import main
from metarnn.training import Folder
from tests.faults.test_killed import LM, text
from tests.helpers.process import environment
from tests.helpers.toy import QUICK, same, train


@pytest.mark.medium
def test_train_and_evaluate_work_with_closed_standard_streams(tmp_path):
    run = tmp_path / "run"
    flags = ["--data", text(run), "--out", str(run), *LM]
    for words in (["train", "lm", *flags], ["evaluate", str(run), "--device", "cpu"]):
        call = 'exec "$@" <&- >&- 2>&-'
        command = ["sh", "-c", call, "sh", sys.executable, "-m", "metarnn", *words]
        assert subprocess.run(command, env=environment(), timeout=90).returncode == 0
    assert Folder(run).model.exists()


def test_a_training_that_is_hung_up_saves_and_goes_on_to_the_same_end(tmp_path):
    train(tmp_path / "whole")
    _, result = train(tmp_path / "parts", signals={23: signal.SIGHUP})
    assert (result.reason, result.signal) == ("interrupted", signal.SIGHUP)
    train(tmp_path / "parts", resume=True)
    assert same(tmp_path / "whole", tmp_path / "parts")


def test_nohup_is_respected(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        _, result = train(None, QUICK, signals={3: signal.SIGHUP})
    finally:
        signal.signal(signal.SIGHUP, before)
    assert result.reason == "steps"


@pytest.mark.medium
def test_a_training_whose_terminal_is_closed_saves_and_tells_the_signal(tmp_path):
    process, terminal = pty.fork()
    if not process:
        code = 1
        try:
            flags = ["--data", text(tmp_path / "run"), "--out", str(tmp_path / "run"), *LM]
            code = main(["train", "lm", *flags, "--steps", "100000"])
        finally:
            os._exit(code)
    last = Folder(tmp_path / "run").last
    end = time.monotonic() + 60
    while not last.exists() and time.monotonic() < end:
        time.sleep(0.01)
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
