"""Claims about a whole process: Python that runs in one of its own, with an end to its patience."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]


def python(
    code: str, *, seconds: float = 90, **environment: str | Path | None
) -> subprocess.CompletedProcess[str]:
    """Run Python code. A variable given as None is not set; the number of threads is 1 if not said.

    What it starts ends with it: a process that hangs is killed, and that fails the test.
    """
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    own = {"OMP_NUM_THREADS": "1", **environment, "PYTHONPATH": path}
    kept = {name: value for name, value in os.environ.items() if name not in own}
    given = {name: str(value) for name, value in own.items() if value is not None}
    return subprocess.run(
        [sys.executable, "-c", dedent(code)],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=kept | given,
    )


def succeed(code: str, **options) -> str:
    """What it printed; it must come to a good end."""
    done = python(code, **options)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
