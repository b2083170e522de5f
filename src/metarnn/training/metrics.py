"""What was measured: a line of JSON each time, in the order of the steps."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metarnn.graph.files import append_to


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
        if path is not None and path.exists() and self.size > size:
            handle = append_to(path)
            try:
                os.ftruncate(handle, size)
            finally:
                os.close(handle)

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path is not None and self.path.exists() else 0

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
        line = json.dumps({"step": step, **plain}) + "\n"
        with open(append_to(self.path), "ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            data = line.encode()
            try:
                if file.write(data) != len(data):
                    raise OSError(f"cannot write {self.path}: no space left")
            except OSError:
                os.ftruncate(file.fileno(), before)
                raise

    def close(self) -> None:
        if self._board is not None:
            self._board.close()


def _board(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter  # an extra package, slow to import

    return SummaryWriter(str(folder))
