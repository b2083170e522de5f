"""Files that are packed: unpacked only as far as the memory for it is in proportion."""

from __future__ import annotations

import gzip
import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.lib import format as npy

from metarnn.graph.files import content, plain

# A file may always unpack to so many bytes, and to so many times its own: text packs 10 to 1, and
# what packs 1000 to 1 is made to fill a memory.
ALWAYS, TIMES = 64 * 2**20, 100
MOST_ARRAYS = 1000
PIECE = 1 << 20


def most(packed: int) -> int:
    """To how many bytes so many may unpack."""
    return max(ALWAYS, TIMES * packed)


def gunzip(path: str | os.PathLike[str]) -> bytes:
    """The content of a file that gzip packed."""
    data = content(path)
    limit = most(len(data))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            found = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{os.fspath(path)} is damaged: {error}") from None
    if len(found) > limit:
        raise _unpacks_to_more(path, limit, len(data))
    return found


def pieces(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The content of a plain file a piece at a time; of one that gzip packed, unpacked."""
    name = os.fspath(path)
    with plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not name.endswith(".gz"):
            while piece := file.read(PIECE):
                yield piece
            return
        limit = left = most(size)
        unpacked = gzip.GzipFile(fileobj=file)
        try:
            while piece := unpacked.read(PIECE):
                left -= len(piece)
                if left < 0:
                    raise _unpacks_to_more(path, limit, size)
                yield piece
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{name} is damaged: {error}") from None


def _unpacks_to_more(path: str | os.PathLike[str], limit: int, size: int) -> ValueError:
    return ValueError(
        f"{os.fspath(path)} unpacks to more than {limit:,} bytes from {size:,}: if that is meant, "
        "unpack it first"
    )


def arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file: of numbers and texts, never of Python's objects."""
    name, data = os.fspath(path), content(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MOST_ARRAYS:
                raise ValueError(f"{len(members):,} arrays: expected at most {MOST_ARRAYS:,}")
            size = sum(member.file_size for member in members)
            if size > most(len(data)):
                why = "if that is meant, save it with np.savez, which does not pack"
                raise ValueError(f"it unpacks to {size:,} bytes from {len(data):,}: {why}")
            return {m.filename.removesuffix(".npy"): _array(archive, m) for m in members}
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise ValueError(f"{name} is damaged: {error}") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, struct.error) as error:
        raise ValueError(f"{name} is no .npz file: {error}") from None


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """One array; its header is compared with what is there before memory is taken."""
    with archive.open(member) as packed:
        file = io.BytesIO(packed.read(member.file_size))
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception as error:  # of many kinds, tokenize's among them
        raise ValueError(f"{member.filename} is no array: {error}") from None
    if dtype.kind not in "biufUS":
        raise ValueError(f"{member.filename} has the type {dtype}: expected numbers or texts")
    there = member.file_size - file.tell()
    if math.prod(shape) * dtype.itemsize != there or min(shape, default=1) < 1:
        raise ValueError(f"{member.filename} says the shape {shape}, but {there:,} bytes are there")
    found = np.frombuffer(file.read(), dtype)
    return found.reshape(shape, order="F" if fortran else "C")
