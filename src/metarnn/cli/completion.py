"""`metarnn completion SHELL`: a script that lets a shell complete commands, flags and choices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import tyro
from tyro.extras import SubcommandApp

from metarnn.cli.search import searchable
from metarnn.runs import tasks
from metarnn.runs.searched import Searched


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional], /) -> None:
    """Print a script that completes commands, flags and choices in a shell. Install it once:

    metarnn completion bash > ~/.local/share/bash-completion/completions/metarnn

    metarnn completion zsh > ~/.zfunc/_metarnn, with fpath+=~/.zfunc before compinit in ~/.zshrc

    metarnn completion fish > ~/.config/fish/completions/metarnn.fish

    Args:
        shell: the shell
    """
    everything().cli(args=["--tyro-write-completion", shell, "-"], prog="metarnn")


def everything() -> SubcommandApp:
    """All commands with all of their flags, as one parser."""
    from metarnn.cli.main import COMMANDS, find  # which finds this module by its name

    searched = ((name, Searched.of(entry).kind) for name, entry in searchable().items())
    groups = {
        "train": _group((name, tasks.find(name).kind) for name in tasks.TASKS),
        "search": _group(searched),
    }
    app = SubcommandApp()
    for name in COMMANDS:
        first, *second = name.split()
        if second:
            groups.setdefault(first, SubcommandApp()).command(name=second[0])(find(name))
        elif name not in groups:
            app.command(name=name)(find(name))
    for name, group in groups.items():
        app.command(group, name=name)
    return app


def _group(commands: Iterable[tuple[str, type]]) -> SubcommandApp:
    group = SubcommandApp()
    for name, kind in commands:
        group.command(name=name)(kind)
    return group
