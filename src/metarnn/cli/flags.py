"""Which flags a command has, so that none is told to use one that it lacks."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

from metarnn.cli import main
from metarnn.runs import tasks

FLAG = re.compile(r"(?<![\w`/-])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)")


def flags(command: str) -> set[str]:
    """The names of a command's flags, as in `train lm`, without their dashes.

    >>> "horizon" in flags("train forecasting"), "horizon" in flags("forecast")
    (True, False)
    """
    verb, _, task = command.partition(" ")
    if verb in main.TASKED:
        entry = tasks.find(task)
        if verb == "search":
            from metarnn.runs.searched import Searched  # imports all of the search

            entry = Searched.of(entry)
        found = {field.name for field in fields(entry.kind)}
    else:
        found = set(inspect.signature(main.find(command)).parameters)
    return {name.replace("_", "-") for name in found} | {"help", "debug"}


def elsewhere(command: str, message: str) -> str:
    """What a message has to add where it names flags that a command lacks: which one has them.

    >>> elsewhere("forecast", "'a' is no number. Name it with --static.")
    ' (--static is a flag of `metarnn train forecasting`.)'
    """
    verb, _, task = command.partition(" ")
    if verb in main.TASKED and task not in tasks.TASKS:
        return ""
    if verb not in main.TASKED and command not in main.COMMANDS:
        return ""
    own = flags(command)
    # What stands in backquotes is a command of its own.
    named = dict.fromkeys(FLAG.findall(re.sub(r"`[^`]*`", "", message)))
    named = [name for name in named if name not in own and name.removeprefix("no-") not in own]
    for other in tasks.TASKS:
        if named and flags(f"train {other}").issuperset(named):
            words = " and ".join(f"--{name}" for name in named)
            verb = "is a flag" if len(named) == 1 else "are flags"
            return f" ({words} {verb} of `metarnn train {other}`.)"
    return ""
