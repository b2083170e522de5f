"""Files that are whole or not there, read with an end to what they may take."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from metarnn.graph.sealed import DamagedError, seal, verify

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
    start = f".{path.name}."
    with _named(path, os.path.abspath(path.parent / start)):
        handle, name = tempfile.mkstemp(".new", start, path.parent)
    os.close(handle)
    try:
        with _named(path, name):
            yield Path(name)
            sync(name)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
            os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    _sync_folder(path.parent)


@contextmanager
def _named(path: str | os.PathLike[str], temporary: str = "") -> Generator[None, None, None]:
    """Name this file in an OSError that names none, or a temporary one that begins like this."""
    try:
        yield
    except OSError as error:
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        ours = not names or any(name.startswith(temporary) for name in names if temporary)
        if error.errno is None or not ours:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a file beside its place, then rename it: nobody ever sees, or loses, half of one."""
    with beside(path) as new:
        new.write_text(text, encoding="utf-8")


def write_document(
    path: str | os.PathLike[str], content: Mapping[str, Any], *, indent: int | None = 1
) -> None:
    """Write an object as JSON with its checksum, which `document` verifies."""
    write(path, json.dumps(seal(content), indent=indent, ensure_ascii=False) + "\n")


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


def append(path: str | os.PathLike[str], data: bytes) -> None:
    """Add data to the end of a file; where not all of it can be written, the file stays as it was.

    It may be lost with the power until `sync` has been called.
    """
    handle = append_to(path)
    try:
        with _named(path):
            before = os.fstat(handle).st_size
            try:
                if os.write(handle, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                os.ftruncate(handle, before)
                raise
    finally:
        os.close(handle)


def sync(path: str | os.PathLike[str]) -> None:
    """Return once all that was written to a file is on the disk."""
    with _named(path):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def link(source: Path, target: Path) -> None:
    """Give a file a second name, or a copy of it where that does not work."""
    if target.exists() and target.samefile(source):
        return  # renaming one name of a file to another does nothing, and leaves both
    with beside(target) as new:
        try:
            new.unlink()
            os.link(source, new)
        except OSError:
            shutil.copyfile(source, new)


def copy(source: Path, target: Path) -> None:
    """Copy a file; the target is never seen incomplete."""
    with beside(target) as new:
        shutil.copyfile(source, new)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder to a new place; the target is never seen incomplete."""
    if target.exists():
        raise FileExistsError(errno.EEXIST, "the folder exists already", str(target))
    make_folder(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        new = Path(temporary) / target.name
        shutil.copytree(source, new)
        new.rename(target)


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
    """What a JSON file holds; a ValueError names the file where it is not one, or is damaged."""
    found = text(path, most)
    try:
        return verify(json.loads(found))
    except DamagedError as error:
        raise DamagedError(f"{os.fspath(path)} {error}") from None
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
