"""requirements.lock and torch.lock: what pip would install, by version and hashes of its files.

    pip install --dry-run --ignore-installed --report report.json \
        -c constraints.txt '.[dev]' hatchling editables
    python tools/lock.py report.json URL

URL is that of an index with PyPI's files, as pip takes it. The hashes are those of all wheels of a
version there for Python 3.11 on Linux and x86-64, whatever its age, so that other machines and
mirrors may choose another one of them. Of torch there is also the build without CUDA, not on
PyPI. It has a file of its own: pip is to choose the build as it does without hashes, and prefers a
file whose hash an index tells.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

# torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl
ELSEWHERE = {
    ("torch", "2.13.0"): "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
}
LINK = re.compile(r'href="[^"]*/([^"/#]+)#sha256=([0-9a-f]{64})"')


def lock(versions: dict[str, str], index: str) -> str:
    """The lines of a lock."""
    lines = ["# Made by tools/lock.py"]
    for name, version in sorted(versions.items()):
        found = sorted(digests(name, version, index))
        hashes = (f" \\\n    --hash=sha256:{each}" for each in found)
        lines.append(f"{name}=={version}{''.join(hashes)}")
    return "\n".join(lines) + "\n"


def digests(name: str, version: str, index: str) -> set[str]:
    """Of the wheels of a version that fit."""
    with urlopen(f"{index}/{name}/") as page:
        links = LINK.findall(page.read().decode())
    found = {digest for file, digest in links if fits(file, Version(version))}
    found |= {ELSEWHERE[name, version]} if (name, version) in ELSEWHERE else set()
    if not found:
        raise SystemExit(f"{index} has no wheel of {name} {version} for Python 3.11 on Linux")
    return found


def fits(file: str, version: Version) -> bool:
    try:
        _, theirs, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:  # a source, which would run code to be built
        return False
    return theirs == version and any(map(usable, tags))


def usable(tag: Tag) -> bool:
    """By Python 3.11 on Linux and x86-64."""
    linux = tag.platform.endswith("linux1_x86_64") or re.fullmatch(
        r"(many)?linux(_\d+_\d+|20\d\d)?_x86_64", tag.platform
    )
    stable = tag.abi == "abi3" and int(tag.interpreter.removeprefix("cp3") or 0) <= 11
    python = tag.interpreter in ("py3", "cp311") or stable
    return python and (tag.platform == "any" or linux is not None)


def chosen(report: dict[str, Any]) -> dict[str, str]:
    """Names and versions of what pip would install beside this package."""
    about = [each["metadata"] for each in report["install"]]
    found = {canonicalize_name(each["name"]): Version(each["version"]).public for each in about}
    return {name: version for name, version in found.items() if name != "metarnn"}


if __name__ == "__main__":
    report, index = sys.argv[1:]
    versions = chosen(json.loads(Path(report).read_text()))
    torch = {"torch": versions.pop("torch")}
    Path("requirements.lock").write_text(lock(versions, index))
    Path("torch.lock").write_text(lock(torch, index))
