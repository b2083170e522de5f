"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file to fill beside `path`, which takes its place at the end of a block without error.

    Nobody ever sees, or loses, half of a file: what was at `path` stays until all of the new one
    is on the disk.

        with beside("numbers.txt") as new:
            new.write_text("1 2 3")
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
        with open(name, "rb") as file:
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    _sync_folder(path.parent)


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a file beside its place, then rename it: nobody ever sees, or loses, half of one."""
    with beside(path) as new:
        new.write_text(text, encoding="utf-8")


def _sync_folder(folder: Path) -> None:
    """The new name reaches the disk too; where a folder cannot be opened, that is not promised."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
