"""The `metarnn` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from metarnn import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `metarnn` with these arguments, by default those of the process; return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"metarnn {__version__}")
        return 0
    try:
        import rich  # noqa: F401  # the commands need it: better said here than in a traceback
        from tyro.extras import subcommand_cli_from_dict
    except ModuleNotFoundError as error:
        print(
            f"The metarnn command needs {error.name}: pip install 'metarnn[cli]'", file=sys.stderr
        )
        return 1

    from metarnn.cli.bench import cells
    from metarnn.cli.cell import show
    from metarnn.cli.data import data_describe
    from metarnn.cli.doctor import doctor

    def cell() -> None:
        """Look at a cell: `metarnn cell show lstm`."""

    def bench() -> None:
        """Measure how fast things are here: `metarnn bench cells`."""

    def data() -> None:
        """Look at a text: `metarnn data describe`."""

    # Commands of two words, by the first: {first: {second: function}}.
    groups = {
        "cell": {"show": show},
        "bench": {"cells": cells},
        "data": {"describe": data_describe},
    }
    if arguments and arguments[0] in groups:
        group, *arguments = arguments
        subcommand_cli_from_dict(
            groups[group], prog=f"metarnn {group}", args=arguments or ["--help"]
        )
        return 0
    subcommand_cli_from_dict(
        {"doctor": doctor, "cell": cell, "bench": bench, "data": data},
        prog="metarnn",
        description="Recurrent sequence models whose recurrent unit is learned. "
        "`metarnn --version` prints the version.",
        args=arguments or ["--help"],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
