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

    from metarnn.cli.doctor import doctor

    subcommand_cli_from_dict(
        {"doctor": doctor},
        prog="metarnn",
        description="Recurrent sequence models whose recurrent unit is learned. "
        "`metarnn --version` prints the version.",
        args=arguments or ["--help"],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
