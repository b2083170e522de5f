"""Claims about a whole process: Python that runs in one of its own, with an end to its patience."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]
JOINED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")  # what torchrun says


def environment(**given: str | Path | None) -> dict[str, str]:
    """That of this process for one that finds the sources and is alone, with what is given.

    A variable given as None is not set.
    """
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    own = {**dict.fromkeys(JOINED), **given, "PYTHONPATH": path}
    kept = {name: value for name, value in os.environ.items() if name not in own}
    return kept | {name: str(value) for name, value in own.items() if value is not None}


def start(*arguments: str, **given: str) -> subprocess.Popen[str]:
    """Python that runs beside this process; what it says can be read."""
    call, pipe = [sys.executable, *arguments], subprocess.PIPE
    return subprocess.Popen(
        call, env=environment(**given), stdout=pipe, stderr=pipe, text=True, cwd=ROOT
    )


def python(
    code: str, *, seconds: float = 90, **given: str | Path | None
) -> subprocess.CompletedProcess[str]:
    """Run Python code, in an `environment`.

    What it starts ends with it: a process that hangs is killed, and that fails the test.
    """
    return subprocess.run(
        [sys.executable, "-c", dedent(code)],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=environment(**given),
    )


def succeed(code: str, **options) -> str:
    """What it printed; it must come to a good end."""
    done = python(code, **options)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
