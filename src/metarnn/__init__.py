"""Recurrent sequence models whose unit is learned; known units are points in the same space."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metarnn.public import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Torch takes two seconds to import, and `metarnn --help` needs none of it: the names come when
    # the first of them is asked for. Others that begin with _ are Python's own questions.
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")  # alone: the rest may be on its way to it
    if name == "__all__" or not name.startswith("_"):
        public = import_module("metarnn.public")
        if hasattr(public, "__all__"):  # not yet while it is itself being imported
            globals().update({each: getattr(public, each) for each in public.__all__})
            globals()["__all__"] = [*public.__all__, "__version__"]
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __getattr__("__all__")
