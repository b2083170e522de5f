"""A folder imports only from the folders above it in this list, and from itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.process import succeed

SOURCE = Path(__file__).resolve().parents[1] / "src" / "metarnn"
ORDER = (
    "cells",
    "graph",
    "engines",
    "layers",
    "hyper",
    "gradients",
    "meta",
    "decoding",
    "tasks",
    "training",
    "search",
    "runs",
    "study",
    "bench",
    "report",
    "cli",
)
FREE = {"__init__.py", "__main__.py", "public.py"}  # at the top they gather what the folders offer
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))


def imported(code: str, module: Path) -> Iterator[tuple[int, str]]:
    """(line, full dotted name) of everything the code of src/metarnn/`module` imports."""
    package = ("metarnn", *module.parent.parts)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join((*base, *filter(None, [node.module])))
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def violations(code: str, module: Path) -> list[str]:
    if len(module.parts) == 1 and module.name in FREE:
        return []
    folder = module.parts[0]
    if folder not in ORDER:
        return [f"src/metarnn/{module}: {folder} has no place in the order of folders"]
    found = []
    for line, name in imported(code, module):
        top, _, rest = name.partition(".")
        if top != "metarnn" or (rest == "__version__" and folder in ("cli", "study")):
            continue
        target = rest.split(".")[0]
        here = f"src/metarnn/{module}:{line}"
        if target not in ORDER:
            found.append(f"{here}: imports {name}, the package itself; name the folder instead")
        elif ORDER.index(target) > ORDER.index(folder):
            found.append(f"{here}: {folder} imports {name}, but {target} is built on {folder}")
    return found


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_imports_only_from_folders_above_its_own(module):
    broken = violations((SOURCE / module).read_text(encoding="utf-8"), module)
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("cells/lstm.py", "from metarnn.engines.eager import run"),
        ("cells/lstm.py", "from metarnn import engines"),
        ("cells/lstm.py", "from .. import engines"),
        ("cells/lstm.py", "from ..engines import eager"),
        ("tasks/synthetic/adding.py", "from ...report import tree"),
        ("tasks/synthetic/__init__.py", "from ... import cli"),
        ("engines/eager.py", "def late():\n    import metarnn.layers.stack as stack"),
        ("engines/eager.py", "if TYPE_CHECKING:\n    from metarnn.layers import LSTM"),
        ("layers/stack.py", "import metarnn"),
        ("layers/stack.py", "from metarnn import *"),
        ("layers/stack.py", "from metarnn import __version__"),
        ("cli/main.py", "from metarnn import LSTM"),
        ("helpers.py", ""),
        ("misc/helpers.py", ""),
    ],
)
def test_an_import_that_breaks_the_order_is_found(module, code):
    assert violations(code, Path(module))


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("cells/lstm.py", "import torch\nfrom metarnn.cells.base import Cell"),
        ("cells/lstm.py", "from .base import Cell\nfrom . import gru"),
        ("layers/stack.py", "from ..engines import eager\nfrom metarnn import cells"),
        ("tasks/synthetic/adding.py", "from ...cells.check import size\nfrom . import copying"),
        ("cli/main.py", "from metarnn import __version__"),
        ("cli/main.py", "import metarnn_extras"),
        ("__init__.py", "from metarnn.cli import main"),
        ("__main__.py", "import metarnn"),
    ],
)
def test_an_import_that_keeps_the_order_is_allowed(module, code):
    assert violations(code, Path(module)) == []


@pytest.mark.medium
def test_any_folder_may_be_the_first_that_a_program_imports():
    """In a process forked for each, since only the first import of all is put to the test."""
    succeed(f"""
        import os, sys, torch
        for name in {ORDER!r}:
            process = os.fork()
            if not process:
                try:
                    __import__("metarnn." + name)
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                    os._exit(1)
                os._exit(0)
            assert os.waitpid(process, 0)[1] == 0, name
    """)
