"""Every command fails with one message and an exit code, and with a traceback only on request."""

import os
import subprocess
import sys

import pytest
import torch

from metarnn.cli import main as command
from metarnn.cli.errors import explained, told
from metarnn.cli.main import COMMANDS, main
from metarnn.search.guards import SearchStopped
from metarnn.training import NotFinite

FAILURES = {
    "a value": (ValueError("batch=0: expected 1"), "batch=0: expected 1", 2),
    "a file": (FileNotFoundError(2, "No such file", "x.txt"), "x.txt: No such file", 2),
    "a folder": (FileNotFoundError(2, "No such file", "/no/.x.tmp"), "there is no folder /no\n", 2),
    "an open file": (IsADirectoryError(21, "Is a directory", 3), "3: Is a directory", 2),
    "orders for the terminal": (ValueError("\x1b[2J\x07 no"), "do: \\x1b[2J\\x07 no\n", 2),
    "a package": (ModuleNotFoundError("No module named 'nix'", name="nix"), "pip install nix", 2),
    "a training": (NotFinite(3, float("nan"), []), "step 3", 3),
    "a search": (SearchStopped("nothing but identity"), "nothing but identity", 3),
    "a GPU's memory": (torch.OutOfMemoryError("CUDA out of memory.\nTried"), "smaller --batch", 4),
    "memory": (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "smaller --batch", 4),
    "another process": (RuntimeError("Connection closed by peer"), "another process", 1),
    "a mistake of ours": (KeyError("width"), "--debug", 1),
    "a division": (ZeroDivisionError("division by zero"), "--debug", 1),
}


def failing(error):
    def call(*arguments, **flags):
        raise error

    return call


@pytest.mark.parametrize("why", FAILURES)
def test_an_error_is_one_message_and_an_exit_code(why, capsys):
    error, message, code = FAILURES[why]
    assert told("metarnn do", failing(error)) == code
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("metarnn do: ")
    assert message in err
    assert "Traceback" not in err
    assert err.count("\n") == 1


def test_an_interruption_is_no_traceback(capsys):
    assert told("metarnn do", failing(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "metarnn do: interrupted\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_shows_a_traceback_unless_asked(name, monkeypatch, capsys):
    def fail(*arguments: str) -> None:
        raise ValueError("this very message")

    monkeypatch.setattr(command, "find", lambda name: fail)
    assert main(name.split()) == 2
    assert "this very message" in capsys.readouterr().err
    for flags in (["--debug"], ["lm", "--debug"]) if name in command.TASKED else (["--debug"],):
        with pytest.raises(ValueError, match="this very message"):
            main([*name.split(), *flags])
        with pytest.raises(ValueError, match="this very message"):
            main(["--debug", *name.split()])


@pytest.mark.medium
def test_whoever_reads_may_stop_reading():
    code = "import sys; from metarnn.cli.main import main; sys.exit(main(['cell', 'show', 'lstm']))"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.returncode == 141
    assert done.stderr == b""


def test_a_message_of_our_own_about_a_package_stays_as_it_is():
    error = ModuleNotFoundError("BPE needs tokenizers: pip install 'metarnn[bpe]'")
    assert explained(error)[0] == str(error)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train"]])
def test_help_too_may_be_read_in_part(arguments, monkeypatch):
    def break_off(*said: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", break_off)
    monkeypatch.setattr(os, "dup2", lambda *files: None)  # the output of this process goes on
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    assert main(arguments) == 141
