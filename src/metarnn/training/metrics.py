"""What was measured: a line of JSON each time, in the order of the steps."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metarnn.graph.files import append, append_to, content, sync
from metarnn.graph.sealed import KEY, SHORT, DamagedError, seal, verify


class Metrics:
    """A file that grows by one line of JSON a measurement.

    Args:
        path: the file; None to keep nothing
        size: how much of it to keep, in bytes: what was added after the checkpoint that a training
            goes on from will come again
        tensorboard: a folder for TensorBoard's event files too
    """

    def __init__(self, path: Path | None, size: int = 0, tensorboard: Path | None = None) -> None:
        self.path = path
        self._board = None if tensorboard is None else _board(tensorboard)
        if path is not None and path.exists():
            handle = append_to(path)
            try:
                read_lines(path, size)
                if os.fstat(handle).st_size > size:
                    os.ftruncate(handle, size)
            finally:
                os.close(handle)

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path is not None and self.path.exists() else 0

    def saved(self) -> int:
        """The size, once all of it is on the disk: what a checkpoint counts on."""
        if self.path is not None and self.path.exists():
            sync(self.path)
        return self.size

    def add(self, step: int, numbers: Mapping[str, float | int | str]) -> None:
        """Add a line; if the disk is full, the file is left as it was."""
        if self._board is not None:
            for name, value in numbers.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(name, value, step)
        if self.path is None:
            return
        # JSON has no NaN or infinity.
        plain = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in numbers.items()
        }
        entries = seal({"step": step, **plain}, SHORT)
        checksum = entries.pop(KEY)
        append(self.path, (json.dumps({**entries, KEY: checksum}) + "\n").encode())

    def close(self) -> None:
        if self._board is not None:
            self._board.close()


def read_lines(path: Path, size: int | None = None) -> list[dict[str, Any]]:
    """The lines of a file of metrics, or of its first bytes; the last may be half written.

    A DamagedError names the line that does not fit its checksum.
    """
    found: list[dict[str, Any]] = []
    lines = content(path)[:size].split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            entry: dict[str, Any] | None = verify(json.loads(line)) if line.strip() else None
        except (ValueError, RecursionError) as error:
            if number == len(lines) and not line[:-1].endswith(b'"}'):
                break  # half of a line; behind all of one stands what was its end
            why = error if isinstance(error, DamagedError) else f"is not JSON: {error}"
            raise DamagedError(f"{path}, line {number}: it {why}") from None
        if isinstance(entry, dict):
            found.append(entry)
    return found


def _board(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter  # an extra package, slow to import

    return SummaryWriter(str(folder))
