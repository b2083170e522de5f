"""A run is a folder: its names can be predicted, its files are whole or not there.

config.toml               everything that was set
metrics.jsonl             one line each time something was measured
checkpoints/last.safetensors, best.safetensors, and earlier.safetensors, the one before the last
model.safetensors         the best weights, or the average of them that scored best
cell.json, …              what the task adds
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from metarnn.graph.files import append_to, link, make_folder, tidy
from metarnn.training import checkpoint
from metarnn.training.checkpoint import CheckpointError
from metarnn.training.interrupt import Interrupted


class FolderError(ValueError):
    """A run folder that cannot be used, and what to do about it."""


class Folder:
    """The folder of a run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / "config.toml"
        self.metrics = self.path / "metrics.jsonl"
        self.model = self.path / "model.safetensors"
        self.last = self.path / "checkpoints" / "last.safetensors"
        self.earlier = self.path / "checkpoints" / "earlier.safetensors"
        self.best = self.path / "checkpoints" / "best.safetensors"

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        """Whether there is a run in it: a folder that is empty is none."""
        if not self.path.exists():
            return False
        if not self.path.is_dir():
            raise FolderError(f"{self} is a file: expected a folder, or a name not yet taken")
        return any(entry.name != ".lock" for entry in self.path.iterdir())

    def make(self) -> None:
        """Make the folder, for a caller that holds the lock of one around it."""
        self.path.mkdir(parents=True, exist_ok=True)
        make_folder(self.last.parent)

    @contextmanager
    def locked(self, *, resume: bool) -> Generator[None, None, None]:
        """Make the folder, and keep every other process from training into it meanwhile.

        An error removes a folder that was made here and has no weights yet. A stopped run stays.
        """
        if not resume and self.exists():
            raise FolderError(
                f"{self} holds a run already. Continue it with --resume, or give another --out"
            )
        new = [path for path in (self.path, self.path.parent) if not path.exists()]
        try:
            self.make()
            lock = open(append_to(self.path / ".lock"), "a+", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            why = error.strerror or error
            raise FolderError(f"{self} cannot be written to: {why}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                lock.seek(0)
                holder = lock.read().strip() or "another process"
                raise FolderError(
                    f"{self} is being trained into by {holder}. Wait for it, or give another --out"
                ) from None
            with suppress(OSError):  # of use to others only
                os.ftruncate(lock.fileno(), 0)
                os.write(lock.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
            tidy(self.path)
            try:
                yield
            except Interrupted:
                raise
            except Exception:
                self._remove(new)
                raise
            with suppress(OSError):
                os.ftruncate(lock.fileno(), 0)

    def _remove(self, new: list[Path]) -> None:
        """Remove this folder and its parent, as far as they are new and hold nothing of use."""
        if self.path in new and not any(self.path.rglob("*.safetensors")):
            shutil.rmtree(self.path, ignore_errors=True)
            with suppress(OSError):
                if self.path.parent in new:
                    self.path.parent.rmdir()

    def drop_checkpoints(self) -> None:
        """Remove the optimizer states of a training that nothing will resume."""
        shutil.rmtree(self.last.parent, ignore_errors=True)

    def save_last(self, state: Mapping[str, Any]) -> None:
        """Write the last checkpoint; the one before it is kept."""
        if self.last.exists():
            link(self.last, self.earlier)
        checkpoint.save(self.last, state)

    def read_last(self, say: Callable[[str], None]) -> dict[str, Any] | None:
        """The last checkpoint; where it is damaged, the one before, and that is said.

        None where there is none yet.
        """
        if not self.last.exists():
            return None
        try:
            return checkpoint.load(self.last)
        except CheckpointError as error:
            try:
                state = checkpoint.load(self.earlier)
            except (OSError, CheckpointError):
                raise error from None
            say(f"{error}. The checkpoint before it takes its place")
            link(self.earlier, self.last)
            return state

    def drop_earlier(self) -> None:
        """Remove the checkpoint before the last one, of a training that came to its end."""
        self.earlier.unlink(missing_ok=True)

    def keep_as_best(self) -> None:
        """The last checkpoint is the best one too: one file under two names, where that works."""
        link(self.last, self.best)
