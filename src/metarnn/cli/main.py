"""The `metarnn` command."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from metarnn import __version__
from metarnn.cli.errors import DEBUG, told

# Commands of one or two words: where each is, and what it is for. Only the one that is called is
# imported.
COMMANDS = {
    "learn": ("metarnn.cli.learn:learn", "the main job: find a unit for your data, and compare"),
    "train": ("metarnn.cli.train:train", "train a model: metarnn train lm"),
    "search": ("metarnn.cli.search:search", "find a unit for a task: metarnn search lm"),
    "evaluate": ("metarnn.cli.evaluate:evaluate", "exact scores of a trained model"),
    "generate": ("metarnn.cli.generate:generate", "text from a trained language model"),
    "classify": ("metarnn.cli.classify:classify", "labels of new sequences"),
    "forecast": ("metarnn.cli.forecast:forecast", "what follows the end of series"),
    "export": ("metarnn.cli.export:export", "a trained model for other programs: ONNX, torch"),
    "compare": (
        "metarnn.cli.compare:compare",
        "recurrent units side by side, at equal parameters",
    ),
    "translate": ("metarnn.cli.translate:translate", "translate standard input, a line each"),
    "diagnose": ("metarnn.cli.diagnose:diagnose", "how far back gradients get, and what is wrong"),
    "report": ("metarnn.cli.report:report", "a page about runs: curves, units, samples, verdict"),
    "adapt": ("metarnn.cli.adapt:adapt", "adapt a few-shot learner to a new task"),
    "data describe": ("metarnn.cli.data:data_describe", "what is in a text"),
    "cell show": ("metarnn.cli.cell:show", "a cell as formulas and as a picture"),
    "bench cells": ("metarnn.cli.bench:cells", "how fast every cell is here"),
    "bench generated": ("metarnn.cli.bench:generated", "what generating weights costs here"),
    "bench learn": ("metarnn.cli.bench:learn", "learn beside GRU and LSTM at equal time"),
    "bench gradients": ("metarnn.cli.bench_gradients:gradients", "what gradient rules cost"),
    "completion": ("metarnn.cli.completion:completion", "completion for bash, zsh or fish"),
    "doctor": ("metarnn.cli.doctor:doctor", "what this machine has to run on"),
}
# Threads of OpenMP that wait for work do not spin: where other programs use the cores as well, a
# training with spinning threads is five times as slow. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
TASKED = ("train", "search")  # their flags depend on the task, so they read them themselves


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `metarnn` with these arguments, by default those of the process; return its exit code."""
    _open_streams()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    words = [each for each in arguments if each != DEBUG]
    if DEBUG in arguments:
        return _run(words) or 0
    return told(" ".join(["metarnn", *_title(words)]), lambda: _run(words))


def find(name: str) -> Callable[..., int | None]:
    """The function of a command, from its module."""
    module, function = COMMANDS[name][0].split(":")
    return getattr(importlib.import_module(module), function)


def _open_streams() -> None:
    """Open the null device for standard streams that are closed, as under cron and daemons.

    Each takes the lowest free descriptor, its own: no file of a run is ever mistaken for it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _run(words: list[str]) -> int | None:
    if words == ["--version"]:
        print(f"metarnn {__version__}")
        return 0
    name = _name(words)
    if not name:
        return _help(words)
    try:
        # The commands need it: better said here than in a traceback.
        importlib.import_module("rich")
        import tyro
    except ModuleNotFoundError as error:
        message = f"the command line needs {error.name}: pip install 'metarnn[cli]'"
        raise ModuleNotFoundError(message) from None
    call, rest = find(name), words[len(name.split()) :]
    return call(rest) if name in TASKED else tyro.cli(call, prog=f"metarnn {name}", args=rest)


def _name(words: list[str]) -> str:
    """The command that these words begin with; "" for none."""
    beginnings = (" ".join(words[:count]) for count in (2, 1))
    return next((each for each in beginnings if each in COMMANDS), "")


def _title(words: list[str]) -> list[str]:
    """What was called, for messages: the command and, where there is one, its task."""
    name = _name(words).split()
    task = words[1:2] if name and name[0] in TASKED else []
    return [*name, *(word for word in task if not word.startswith("-"))]


def _help(words: list[str]) -> int:
    """List the commands, or say that there is no such command."""
    first = words[0] if words else "--help"
    group = [name for name in COMMANDS if name.split()[0] == first]
    if first in ("-h", "--help") or (group and words[1:2] in ([], ["-h"], ["--help"])):
        print("usage: metarnn COMMAND [flags]; `metarnn COMMAND --help` lists them\n")
        for name in group or COMMANDS:
            print(f"  {name:<15} {COMMANDS[name][1]}")
        print(f"\nEvery command takes {DEBUG}, which shows where in the code an error came up.")
        print("Recurrent sequence models whose recurrent unit is learned. `metarnn --version`")
        return 0
    given = " ".join(words[: 2 if group else 1])
    near = get_close_matches(given, COMMANDS, 1)
    advice = f"did you mean `metarnn {near[0]}`?" if near else "`metarnn --help` lists them all"
    raise ValueError(f"there is no command {given!r}; {advice}")


if __name__ == "__main__":
    sys.exit(main())
