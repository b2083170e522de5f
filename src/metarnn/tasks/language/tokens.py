"""Numbered tokens of a split: in memory where they are few, else in a memory-mapped file."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

# Pages of a mapped file count as resident once they were read, and one fault may bring in 2 MiB;
# after this many reads they are given back, so that memory does not grow with the text.
READS = 16


class Tokens:
    """The tokens of documents one after the other; reads copy, and wrap round at the end.

    >>> tokens = Tokens(np.array([7, 8, 9], np.uint8), np.array([0, 2, 3]))
    >>> tokens.read(2, 3), tokens.starts(2, 3)
    (array([9, 7, 8]), array([ True,  True, False]))

    bounds  where each document begins, and the end of the last, [documents + 1]
    """

    def __init__(self, values: np.ndarray, bounds: np.ndarray, mapped: mmap.mmap | None = None):
        self.values, self.bounds = values, bounds
        self.mapped, self._reads = mapped, 0

    @classmethod
    def open(cls, path: Path, dtype: np.dtype) -> Tokens:
        """The tokens that `write` put into a file, beside which their bounds lie."""
        try:
            bounds = np.load(_bounds(path), mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise
        except Exception as error:  # of many kinds, tokenize's among them
            raise ValueError(f"{_bounds(path)} is no array: {error}") from None
        if bounds.dtype != np.int64 or bounds.ndim != 1 or len(bounds) < 2 or bounds[0] != 0:
            raise ValueError(f"{_bounds(path)} holds no bounds of documents")
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if len(mapped) != int(bounds[-1]) * dtype.itemsize:
            raise ValueError(f"{path} has {len(mapped):,} bytes, its bounds say another length")
        return cls(np.frombuffer(mapped, dtype), bounds, mapped)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def documents(self) -> int:
        return len(self.bounds) - 1

    def read(self, start: int, count: int) -> np.ndarray:
        """`count` tokens from `start` on, as int64."""
        start %= len(self)
        found = self.values[start : start + count].astype(np.int64)
        self._release()
        while len(found) < count:
            more = self.values[: count - len(found)].astype(np.int64)
            found = np.concatenate([found, more])
        return found

    def starts(self, start: int, count: int) -> np.ndarray:
        """Which of these tokens are the first of a document."""
        places = (start + np.arange(count)) % len(self)
        if self.documents == 1:
            return places == 0
        at = np.searchsorted(self.bounds[:-1], places)
        return self.bounds[:-1][np.minimum(at, self.documents - 1)] == places

    def _release(self) -> None:
        self._reads += 1
        if self.mapped is not None and not self._reads % READS and hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED)


class Writer:
    """Collects the tokens of one document after the other."""

    def __init__(self, dtype: np.dtype, path: Path | None = None) -> None:
        self.dtype, self.path = dtype, path
        self.bounds = [0]
        self.unknown = 0
        self._parts: list[np.ndarray] = []
        self._file: BinaryIO | None = None if path is None else path.open("wb")

    def add(self, pieces: Iterable[np.ndarray], unknown: int) -> int:
        """Append a document, count the tokens equal to `unknown`, return how many it has."""
        count = 0
        for piece in pieces:
            self.unknown += int(np.count_nonzero(piece == unknown))
            values = piece.astype(self.dtype)
            count += len(values)
            if self._file is None:
                self._parts.append(values)
            else:
                values.tofile(self._file)
        if count:
            self.bounds.append(self.bounds[-1] + count)
        return count

    def close(self) -> Tokens:
        bounds = np.array(self.bounds, np.int64)
        if self._file is None or self.path is None:
            empty = [np.zeros(0, self.dtype)]
            return Tokens(np.concatenate(self._parts or empty), bounds)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        np.save(_bounds(self.path), bounds)
        return Tokens(np.zeros(0, self.dtype), bounds)


def _bounds(path: Path) -> Path:
    return path.with_suffix(".bounds.npy")
