"""Files that are whole or not there, read with an end to what they may take."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

LARGEST_DOCUMENT = 64 * 2**20  # bytes of a JSON or TOML file: parsed it takes some 30 times as much
LEFT = re.compile(r"\..+\.[a-z0-9_]{8}\.new|\.tmp[A-Za-z0-9]{6}")  # the second is safetensors'


@contextmanager
def beside(path: str | os.PathLike[str]) -> Generator[Path, None, None]:
    """A file to fill beside `path`, which takes its place at the end of a block without error.

    Nobody ever sees, or loses, half of a file: what was at `path` stays until all of the new one
    is on the disk. A symbolic link at `path` is replaced, and what it points to is left alone.

        with beside("numbers.txt") as new:
            new.write_text("1 2 3")
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(".new", f".{path.name}.", path.parent)
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


def append_to(path: str | os.PathLike[str]) -> int:
    """A handle at the end of a file, made if it is not there; links to one are not followed."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        handle = os.open(path, flags, 0o666)
    except OSError:
        _refuse_link(Path(path))
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{os.fspath(path)} is no plain file")
    return handle


def make_folder(path: Path) -> None:
    """Make a folder where there is none; a symbolic link in its place is refused."""
    _refuse_link(path)
    path.mkdir(parents=True, exist_ok=True)


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise OSError(f"{path} is a symbolic link, through which nothing is written: remove it")


def tidy(folder: Path) -> None:
    """Remove what processes left in a folder, and below, that were killed while they wrote."""
    for place, _, files in os.walk(folder):
        for name in files:
            if LEFT.fullmatch(name):
                with suppress(OSError):
                    os.unlink(os.path.join(place, name))


def content(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """All of a plain file, of at most so many bytes, by default as many as there is memory.

    Devices and pipes are refused: they may have no end, or let the reader wait for one.
    """
    most = memory() if most is None else most
    with plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        found = file.read(size + 1) if size <= most else b""
    if max(size, len(found)) > most:
        raise ValueError(f"{os.fspath(path)} has {size:,} bytes: expected at most {most:,}")
    return found


def plain(path: str | os.PathLike[str]) -> BinaryIO:
    """A plain file, opened to be read; anything else is refused, and never waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError(f"{os.fspath(path)} is no plain file")
    return open(handle, "rb")


def text(path: str | os.PathLike[str], most: int | None = None) -> str:
    """The same as text."""
    try:
        return content(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        why = f"{error.reason} at byte {error.start}"
        raise ValueError(f"{os.fspath(path)} is no text in UTF-8: {why}") from None


def document(path: str | os.PathLike[str], most: int = LARGEST_DOCUMENT) -> Any:
    """What a JSON file holds; a ValueError names the file where it is not one."""
    found = text(path, most)
    try:
        return json.loads(found)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)} is not JSON: {error}") from None


def memory() -> int:
    """The bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _sync_folder(folder: Path) -> None:
    """The new name reaches the disk too; where a folder cannot be opened, that is not promised."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
