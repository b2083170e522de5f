"""requirements.lock from what pip would install: names, versions and hashes of its files.

    pip install --dry-run --ignore-installed --report report.json \
        -c constraints.txt '.[dev]' hatchling editables
    python tools/lock.py report.json > requirements.lock

The hashes are those of the files for the Python and the machine that the command ran on. torch is
left out, since each index has a build of its own under one version; `make LOCKED=1` takes it by
constraints.txt, and all else by its hash.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LEFT_OUT = ("metarnn", "torch")


def lock(report: dict[str, Any]) -> str:
    """The lines of requirements.lock."""
    lines = ["# Made by tools/lock.py: pip install --no-deps --require-hashes -r requirements.lock"]
    packages = {each["metadata"]["name"].lower(): each for each in report["install"]}
    for name, package in sorted(packages.items()):
        if name not in LEFT_OUT:
            digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name}=={package['metadata']['version']} --hash=sha256:{digest}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(lock(json.loads(Path(sys.argv[1]).read_text())), end="")
