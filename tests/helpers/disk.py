"""A disk that fails: every write of `graph.files` counted, and the n-th of them gone wrong."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from metarnn.graph import files

KINDS = ("ENOSPC", "EIO", "power")


class PowerCut(BaseException):
    """The machine is off: nothing that comes after this is done."""


class Disk:
    """What `os` is to `graph.files`.

    Counted are syncs of files, renames and appends. The n-th goes wrong:

    ENOSPC  after half of the data
    EIO     with nothing done
    power   right after it was done; what was renamed and not synced before is empty then

    Args:
        at: which is to go wrong; none for -1
    """

    def __init__(self, at: int = -1, kind: str = "EIO") -> None:
        self.at, self.kind = at, kind
        self.paths: list[str] = []  # what was written, in order
        self._synced: dict[int, int] = {}  # by inode, the time of the change that was synced

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, handle: int) -> None:
        about = os.fstat(handle)
        path = os.readlink(f"/proc/self/fd/{handle}")
        if os.path.isdir(path):
            return
        if self._fails(path) and self.kind != "power":
            if about.st_nlink == 1:  # a second name for a file that is there already has no data
                os.truncate(path, about.st_size // 2)
            self._fail()
        self._synced[about.st_ino] = about.st_mtime_ns
        self._cut()

    def replace(self, source: str, target: Any) -> None:
        if self._fails(os.fspath(target)) and self.kind != "power":
            self._fail()
        about = os.stat(source)
        safe = self._synced.get(about.st_ino) == about.st_mtime_ns
        os.replace(source, target)
        if self.at >= 0 and not safe:
            os.truncate(target, 0)
        self._cut()

    def write(self, handle: int, data: bytes) -> int:
        if self._fails(os.readlink(f"/proc/self/fd/{handle}")):
            if self.kind == "ENOSPC":
                return os.write(handle, data[: len(data) // 2])
            if self.kind == "EIO":
                self._fail()
        count = os.write(handle, data)
        self._cut()
        return count

    def _fails(self, path: str) -> bool:
        self.paths.append(path)
        return self.failed

    @property
    def failed(self) -> bool:
        return len(self.paths) - 1 == self.at

    def _fail(self) -> None:
        number = getattr(errno, self.kind)
        raise OSError(number, os.strerror(number))

    def _cut(self) -> None:
        if self.failed and self.kind == "power":
            raise PowerCut


@contextmanager
def failing(at: int = -1, kind: str = "EIO") -> Generator[Disk]:
    """Let the disk fail in this block."""
    disk = Disk(at, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "os", disk)
        yield disk
