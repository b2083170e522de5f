"""What a person is told when a command fails: one message and an exit code, no traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

DEBUG = "--debug"
REFUSED = 2  # what was given cannot be used: a value, a file, a package that is not there
RAN_OFF = 3  # a training or a search that went nowhere
TOO_LARGE = 4  # out of memory
UNEXPECTED = 1
INTERRUPTED = 128 + 2  # SIGINT
BROKEN_PIPE = 128 + 13  # SIGPIPE


def told(name: str, call: Callable[[], int | None]) -> int:
    """Run a command and return its exit code; an error becomes one message on standard error."""
    try:
        code = call() or 0
        sys.stdout.flush()  # so that a pipe that broke is found here
        return code
    except KeyboardInterrupt:
        _say(name, "interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read has seen enough: `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        message, code = explained(error)
        _say(name, message)
        return code


def explained(error: Exception) -> tuple[str, int]:
    """What happened and what to do about it, and the exit code for it."""
    said = str(error).strip()
    if isinstance(error, MemoryError) and _is_ours(error):  # with what would fit
        return said, TOO_LARGE
    if _is_memory(error):
        first = said.splitlines()[0] if said else "no more could be had"
        advice = "Take a smaller --batch, a smaller model, or shorter sequences"
        return f"out of memory: {first}. {advice}", TOO_LARGE
    if isinstance(error, ArithmeticError) and _is_ours(error):
        return said, RAN_OFF
    if isinstance(error, ModuleNotFoundError) and said.startswith("No module named"):
        return f"this needs the package {error.name}: pip install {error.name}", REFUSED
    if isinstance(error, OSError) and error.filename and error.strerror:
        folder = os.path.dirname(str(error.filename))  # or the number of an open file
        if isinstance(error, FileNotFoundError) and folder and not os.path.isdir(folder):
            return f"there is no folder {folder}", REFUSED
        return f"{error.filename}: {error.strerror}", REFUSED
    if isinstance(error, ValueError | OSError | ModuleNotFoundError):
        return said or type(error).__name__, REFUSED
    if isinstance(error, RuntimeError) and "peer" in said:  # what is said of a broken connection
        return "another process of this training ended", UNEXPECTED
    kind = type(error).__name__
    return f"{kind}: {said}. This should not happen: {DEBUG} shows where it did", UNEXPECTED


def _with_owner(name: str, message: str) -> str:
    """The message; where it names flags that the command lacks, with the command that has them."""
    if "--" not in message or not name.startswith("metarnn "):
        return message
    from metarnn.cli.flags import elsewhere  # imports the commands: most need not wait for it

    return message + elsewhere(name.removeprefix("metarnn "), message)


def _is_memory(error: Exception) -> bool:
    # By name: torch may not be imported, and its class has moved between versions.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "allocate memory" in str(error))


def _is_ours(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] == "metarnn"


def _say(name: str, message: str) -> None:
    message = _with_owner(name, message)
    if not message.replace("\n", "").isprintable():
        from metarnn.training.progress import printable  # imports torch: most need not wait for it

        message = printable(message)
    print(f"{name}: {message}", file=sys.stderr)
