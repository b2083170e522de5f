"""The `metarnn` command."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from metarnn import __version__

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
    "adapt": ("metarnn.cli.adapt:adapt", "adapt a few-shot learner to a new task"),
    "data describe": ("metarnn.cli.data:data_describe", "what is in a text"),
    "cell show": ("metarnn.cli.cell:show", "a cell as formulas and as a picture"),
    "bench cells": ("metarnn.cli.bench:cells", "how fast every cell is here"),
    "bench generated": ("metarnn.cli.bench:generated", "what generating weights costs here"),
    "bench gradients": ("metarnn.cli.bench_gradients:gradients", "what gradient rules cost"),
    "doctor": ("metarnn.cli.doctor:doctor", "what this machine has to run on"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `metarnn` with these arguments, by default those of the process; return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"metarnn {__version__}")
        return 0
    try:
        import rich  # noqa: F401  # the commands need it: better said here than in a traceback
        import tyro
    except ModuleNotFoundError as error:
        print(
            f"The metarnn command needs {error.name}: pip install 'metarnn[cli]'", file=sys.stderr
        )
        return 1
    name, rest = _find(arguments)
    module, function = COMMANDS[name][0].split(":")
    call = getattr(importlib.import_module(module), function)
    if name in ("train", "search"):  # their flags depend on the task
        return call(rest)
    tyro.cli(call, prog=f"metarnn {name}", args=rest)
    return 0


def _find(arguments: list[str]) -> tuple[str, list[str]]:
    """The command that these arguments begin with, and the others; leaves with help otherwise."""
    for words in (2, 1):
        if (name := " ".join(arguments[:words])) in COMMANDS:
            return name, arguments[words:]
    first = arguments[0] if arguments else "--help"
    group = [name for name in COMMANDS if name.split()[0] == first]
    if first in ("-h", "--help") or (group and arguments[1:2] in ([], ["-h"], ["--help"])):
        print("usage: metarnn COMMAND [flags]; `metarnn COMMAND --help` lists them\n")
        for name in group or COMMANDS:
            print(f"  {name:<15} {COMMANDS[name][1]}")
        print("\nRecurrent sequence models whose recurrent unit is learned. `metarnn --version`")
        sys.exit(0)
    given = " ".join(arguments[: 2 if group else 1])
    near = get_close_matches(given, COMMANDS, 1)
    advice = f"did you mean `metarnn {near[0]}`?" if near else "`metarnn --help` lists them all"
    print(f"metarnn: there is no command {given!r}; {advice}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    sys.exit(main())
