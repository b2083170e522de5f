"""A bill of materials: what is installed beside this package, as CycloneDX 1.5 JSON.

python tools/sbom.py > sbom.json
"""

from __future__ import annotations

import json
import re
from importlib import metadata
from typing import Any

ROOT = "metarnn"


def sbom() -> dict[str, Any]:
    """The packages that metarnn needs, and those which these need, with versions and licences."""
    installed = {normal(d.metadata["Name"]): d for d in metadata.distributions()}
    needed = {ROOT: needs(installed[ROOT], installed)}
    todo = list(needed[ROOT])
    while todo:
        name = todo.pop()
        if name not in needed:
            needed[name] = needs(installed[name], installed)
            todo += needed[name]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(installed[ROOT])},
        "components": [component(installed[name]) for name in sorted(needed) if name != ROOT],
        "dependencies": [
            {
                "ref": purl(installed[name]),
                "dependsOn": [purl(installed[n]) for n in sorted(needed[name])],
            }
            for name in sorted(needed)
        ],
    }


def needs(package: metadata.Distribution, installed: dict[str, metadata.Distribution]) -> set[str]:
    """What a package asks for, as far as it is there: extras and markers choose the rest away."""
    names = (re.match(r"[\w.-]+", text) for text in package.requires or ())
    found = {normal(name[0]) for name in names if name}
    return {name for name in found if name in installed} - {normal(package.metadata["Name"])}


def component(package: metadata.Distribution) -> dict[str, Any]:
    about = package.metadata
    fields = [about[name] for name in ("License-Expression", "License") if name in about]
    licence = next((text for text in fields if text), "unknown")
    return {
        "type": "library",
        "bom-ref": purl(package),
        "name": about["Name"],
        "version": package.version,
        "purl": purl(package),
        "licenses": [{"license": {"name": licence.splitlines()[0][:100]}}],
    }


def purl(package: metadata.Distribution) -> str:
    return f"pkg:pypi/{normal(package.metadata['Name'])}@{package.version}"


def normal(name: str) -> str:
    """The name as indexes have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print(json.dumps(sbom(), indent=1))
